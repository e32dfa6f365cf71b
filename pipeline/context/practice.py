"""Rules people run in practice: repeated commands, failed calls, superseded writes (METHODS 2)."""

from collections.abc import Callable, Mapping, Sequence

from pipeline.context.commands import command_of, cut_commands
from pipeline.context.shown import acted_turns, content_edit, is_removed, placeholder_text
from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Message, Trajectory, Turn
from pipeline.shell.files import is_protected, read_by, same_file, written_by
from pipeline.spec.policy import Dedup, PurgeErrors, SupersedeWrites

CUT_FAILED = "[Command of a failed call omitted.]"
CUT_BODY = "[Content omitted; the file was read again later.]"


class DedupPolicy:
    """The same command again: only the newest output stays."""

    def __init__(self, spec: Dedup, *, placeholder: str | None) -> None:
        self._spec = spec
        self._placeholder = placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for outputs whose command has been run again."""
        turns = acted_turns(trajectory)
        newest = {(m.tool, command_of(m)): m.index for turn in turns for m in turn.observations}
        return [
            content_edit(m, placeholder_text(self._placeholder, m), "dedup")
            for turn in turns[: max(0, len(turns) - self._spec.protect_last_turns)]
            for m in turn.observations
            if m.is_prunable
            and command_of(m)
            and newest[m.tool, command_of(m)] != m.index
            and not is_removed(m, standing)
            and not is_protected(m.command, self._spec.protect_files)
        ]


class PurgeErrorsPolicy:
    """The command of a call that failed some turns ago is cut; its error stays."""

    def __init__(self, spec: PurgeErrors) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for failed calls more than `after_turns` turns old."""
        turns = acted_turns(trajectory)
        # The newest turn is 0 turns ago, so one more than `after_turns` stay.
        old = turns[: max(0, len(turns) - 1 - self._spec.after_turns)]
        return _cuts(old, standing, self._cut, "purge")

    def _cut(self, message: Message) -> str | None:
        failed = message.returncode is not None and message.returncode != 0
        if not failed or len(command_of(message)) <= len(CUT_FAILED):
            return None
        return None if is_protected(message.command, self._spec.protect_files) else CUT_FAILED


class SupersedeWritesPolicy:
    """What a command wrote is cut once the file has been read again."""

    def __init__(self, spec: SupersedeWrites) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for writes whose file a later command printed."""
        turns = acted_turns(trajectory)
        # By the last part of the path, since few words of a command can name the same file.
        read_at: dict[str, dict[str, int]] = {}
        for turn in turns:
            for m in turn.observations:
                if m.is_prunable and m.returncode in (0, None):
                    for word in read_by(m.command or ""):
                        read_at.setdefault(word.rpartition("/")[2], {})[word] = m.index
        old = turns[: max(0, len(turns) - self._spec.protect_last_turns)]
        return _cuts(old, standing, lambda m: self._cut(m, read_at), "supersede")

    def _cut(self, message: Message, read_at: Mapping[str, Mapping[str, int]]) -> str | None:
        text = message.command or ""
        for write in reversed(written_by(text)):
            if write.end - write.start <= len(CUT_BODY) or is_protected(
                write.path, self._spec.protect_files
            ):
                continue
            reads = read_at.get(write.path.rpartition("/")[2], {})
            if any(at > message.index and same_file(write.path, w) for w, at in reads.items()):
                text = text[: write.start] + CUT_BODY + text[write.end :]
        return None if text == message.command else text


def _cuts(
    turns: Sequence[Turn], standing: Edits, cut: Callable[[Message], str | None], reason: str
) -> list[Edit]:
    """Return one edit for each assistant message of which a command gets shorter."""
    edits = []
    for turn in turns:
        shorter = {
            m.index: text
            for m in turn.observations
            if m.is_prunable and (text := cut(m)) is not None
        }
        edit = cut_commands(turn, standing, shorter, reason) if shorter else None
        if edit is not None:
            edits.append(edit)
    return edits
