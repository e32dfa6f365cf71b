"""Which lines of which files are visible in a view, and how to make them so.

The server has no file system: a line counts as seen when a command that prints it is in the view
together with its output, the output still holds that line, and no later edit touched the file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.serving.sim.recipe import FileEdit, Need
from pipeline.serving.sim.view import Action, hides_lines

_RANGE = r"sed -n ['\"]?(?P<a>\d+),(?P<b>\d+)p['\"]?"
_READS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"^(?:cat -n|nl -ba) (?P<path>\S+)(?: \| (?:{_RANGE}|head -(?:n ?)?(?P<h>\d+)))?$",
        r"^cat (?P<path>\S+)(?: \| head -(?:n ?)?(?P<h>\d+))?$",
        rf"^{_RANGE} (?P<path>\S+)$",
        r"^head -(?:n ?)?(?P<h>\d+) (?P<path>\S+)$",
    )
)
_NUMBERED = re.compile(r"^\s*(\d+)\t", re.MULTILINE)
_WRITES = re.compile(r"write_text|sed -i|git apply|git checkout|tee |cat >")


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A command that prints part of one file."""

    path: str
    start: int
    end: int | None
    """None: to the end of the file."""
    numbered: bool

    def overlaps(self, need: Need) -> bool:
        """Return whether the command prints some of the needed lines."""
        return (
            self.path == need.path
            and self.start <= need.end
            and (self.end is None or self.end >= need.start)
        )


@dataclass(slots=True)
class Seen:
    """What is visible of one file."""

    lines: set[int] = field(default_factory=set)
    past_end: int | None = None
    """The file is known to end before this line."""

    def covers(self, need: Need) -> bool:
        """Return whether all needed lines are visible (lines after the end are)."""
        end = need.end if self.past_end is None else min(need.end, self.past_end - 1)
        return bool(self.lines) and all(n in self.lines for n in range(need.start, end + 1))


def read_of(command: str) -> Read | None:
    """Return what a plain reading command prints; None for any other command."""
    bare = re.sub(r"\s*#.*$", "", command.strip())
    for pattern in _READS:
        match = pattern.match(bare)
        if match:
            found = match.groupdict()
            start = int(found.get("a") or 1)
            last = found.get("b") or found.get("h")
            return Read(
                path=found["path"].removeprefix("./"),
                start=start,
                end=int(last) if last else None,
                numbered=bare.startswith(("cat -n", "nl")),
            )
    return None


def writes_to(command: str, path: str) -> bool:
    """Return whether a command looks like an edit of `path`."""
    return path in command and _WRITES.search(command) is not None


def seen_of(actions: Sequence[Action], path: str, *, stale_too: bool = False) -> Seen:
    """Return what is visible of `path`.

    Args:
        stale_too: count what was read before the last edit of the file as well.
    """
    seen = Seen()
    for action in reversed(actions):
        if action.tool != "bash":
            continue
        if writes_to(action.command, path) and not stale_too:
            break
        read = read_of(action.command)
        if read is not None and read.path == path and action.output is not None:
            _add(seen, read, action.output)
    return seen


def _add(seen: Seen, read: Read, output: str) -> None:
    if read.numbered:
        lines = {int(n) for n in _NUMBERED.findall(output)}
    elif hides_lines(output):
        return
    else:
        lines = set(range(read.start, read.start + output.count("\n") + 1))
    seen.lines |= lines
    if not lines or hides_lines(output):
        return
    last = max(lines)
    is_gapless = len(lines) == last - read.start + 1
    if is_gapless and (read.end is None or last < read.end):
        seen.past_end = last + 1


def missing_needs(
    actions: Sequence[Action], needs: Sequence[Need], *, stale_too: bool = False
) -> list[Need]:
    """Return the needs that are not visible."""
    return [n for n in needs if not seen_of(actions, n.path, stale_too=stale_too).covers(n)]


def shows_old_text(actions: Sequence[Action], edit: FileEdit) -> bool:
    """Return whether every line that the edit replaces stands in some visible output."""
    wanted = {line.strip() for line in edit.old.splitlines() if line.strip()}
    for action in reversed(actions):
        if action.tool == "bash" and writes_to(action.command, edit.path):
            break
        if action.output is not None and edit.path in action.command:
            wanted -= {_NUMBERED.sub("", line).strip() for line in action.output.splitlines()}
    return not wanted


def reading_command(need: Need, *, style: int, margin: int) -> str:
    """Return a command that prints the needed lines.

    Args:
        style: which of the three usual ways.
        margin: how many lines more, before and after.
    """
    start, end = max(1, need.start - margin), need.end + margin
    if style == 0:
        return f"sed -n '{start},{end}p' {need.path}"
    program = "cat -n" if style == 1 else "nl -ba"
    return f"{program} {need.path} | sed -n '{start},{end}p'"


def recall_of(actions: Sequence[Action], need: Need) -> int | None:
    """Return the number under which hidden output of the needed lines can be had again.

    The newest wins. What was read before the last edit of the file is of no use.
    """
    for action in reversed(actions):
        if action.tool == "bash" and writes_to(action.command, need.path):
            return None
        read = read_of(action.command)
        if action.recall_id is not None and read is not None and read.overlaps(need):
            return action.recall_id
    return None
