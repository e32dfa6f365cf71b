"""What a whole command does: its kinds, whether its output shows the repository's text, and how.

A pipeline takes the kind of the last stage that makes an output of its own: `cat f | grep x` reads,
`grep x f | head` searches, `find . | xargs cat` reads. A command takes the kind of its last telling
pipeline. Whether the output *shows text* is a question of its own, asked of every pipeline: the
output of `cat f && pytest` has the file in it. Measured against labels made by hand:
tests/shell and docs/analysis.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pipeline.shell.kinds import (
    FILTERS,
    SUBMIT_SENTINEL,
    Kind,
    git_words,
    has_option,
    python_call,
    stage_kind,
    words,
)
from pipeline.shell.syntax import Pipeline, Stage, pipelines

_VALUES: dict[str, frozenset[str]] = {
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
    "xargs": frozenset({"-n", "-I", "-P", "-L", "-d", "-a", "-s", "-E"}),
    "env": frozenset({"-u", "-C", "-S"}),
    "sudo": frozenset({"-u", "-g"}),
    "nice": frozenset({"-n"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    **dict.fromkeys(
        ("time", "nohup", "command", "exec", "builtin", "ionice", "setsid"), frozenset()
    ),
}
"""Programs that run another one, and which of their options take a value."""

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "eval"})
_NO_TEXT_GIT = words("status branch reflog tag shortlog rev-parse rev-list describe stash")
_COUNTS = words("wc md5sum sha256sum stat du file which whereis cmp")
_GREPS = words("grep egrep fgrep zgrep rg ag ack")


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What is known of a command from its text."""

    kind: Kind
    """Of its last telling pipeline."""
    kinds: tuple[Kind, ...]
    """Of every pipeline, in order."""
    shows_text: bool
    """Its output holds text of the repository, which can be fetched again."""
    numbered: bool
    """Lines of its output may have numbers before them that are not theirs."""
    shown_words: frozenset[str]
    """Words of the pipelines that show text: the files they show are among them."""


@lru_cache(maxsize=1 << 17)
def facts_of(command: str) -> CommandFacts:
    """Return what a command does."""
    kinds: list[Kind] = []
    shown: list[Pipeline] = []
    scripts: dict[str, str] = {}
    numbered = False
    for pipeline in run_pipelines(command):
        kind = _pipeline_kind(pipeline, scripts)
        kinds.append(kind)
        numbered |= not pipeline[-1].writes and any(map(_numbers, pipeline))
        scripts |= {f: s.heredoc for s in pipeline if s.heredoc for f in s.writes}
        if kind.is_read and _shows_text(pipeline):
            shown.append(pipeline)
    telling = [kind for kind in kinds if kind is not Kind.OTHER]
    last = telling[-1] if telling else Kind.OTHER
    return CommandFacts(
        kind=Kind.SUBMIT if Kind.SUBMIT in telling else last,
        kinds=tuple(kinds),
        shows_text=bool(shown),
        numbered=numbered,
        shown_words=frozenset(
            word for pipeline in shown for s in pipeline for word in (*s.words, *s.reads)
        ),
    )


def kind_of(command: str) -> Kind:
    """Return the kind of a whole command."""
    return facts_of(command).kind


def run_pipelines(command: str) -> Iterator[Pipeline]:
    """Yield the pipelines that a command runs, those inside `bash -c` and `find -exec` included."""
    for pipeline in pipelines(command):
        yield from _unwrapped(pipeline)


def _unwrapped(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield a pipeline with `sudo`, `timeout`, `xargs` and their like taken off its stages."""
    stages: list[Stage] = []
    for place, wrapped in enumerate(pipeline):
        stage = _inner(wrapped)
        script = _shell_script(stage)
        if script is not None:
            rest = pipeline[place + 1 :]
            yield from (inner for own in pipelines(script) for inner in _unwrapped((*own, *rest)))
            return
        if _inner(wrapped) is not wrapped and wrapped.program == "xargs":
            # What came through the pipe are arguments, and this makes the output.
            stages.clear()
        stages.append(stage)
    yield tuple(stages)


def _inner(stage: Stage) -> Stage:
    """Return the command that a stage runs through others."""
    while (values := _VALUES.get(stage.program)) is not None:
        left = list(stage.arguments)
        while left and (left[0].startswith("-") or "=" in left[0]):
            if left.pop(0) in values and left:
                left.pop(0)
        if stage.program == "timeout" and left:
            left.pop(0)
        if not left:
            return stage
        stage = replace(stage, words=tuple(left))
    if stage.program == "find":
        for option in ("-exec", "-execdir", "-ok"):
            if option in stage.words:
                inner = stage.words[stage.words.index(option) + 1 :]
                return _inner(replace(stage, words=tuple(w for w in inner if w not in {";", "+"})))
    return stage


def _shell_script(stage: Stage) -> str | None:
    """Return the script that a shell is given in the command."""
    if stage.program not in _SHELLS:
        return None
    if stage.program == "eval":
        return " ".join(stage.arguments)
    for place, word in enumerate(stage.arguments[:-1]):
        if word.startswith("-") and word.endswith("c"):
            return stage.arguments[place + 1]
    return stage.heredoc or None


def _pipeline_kind(pipeline: Pipeline, scripts: dict[str, str]) -> Kind:
    if any(SUBMIT_SENTINEL in word for stage in pipeline for word in stage.words):
        return Kind.SUBMIT
    source = pipeline[0]
    for stage in pipeline[1:]:
        if stage.program not in FILTERS or stage_kind(stage, scripts) is Kind.WRITE:
            source = stage
    if source.heredoc and source.program == "cat" and not source.arguments:
        source = Stage(words=("echo",), writes=source.writes)
    kind = stage_kind(source, scripts)
    if kind is Kind.WRITE and source.program == "tee" and len(pipeline) > 1:
        first = stage_kind(pipeline[0], scripts)
        kind = Kind.WRITE if first in {Kind.OTHER, Kind.READ} else first
    to_file = any(f != "/dev/null" for stage in pipeline for f in stage.writes)
    return Kind.WRITE if to_file and kind not in {Kind.TEST, Kind.SUBMIT} else kind


def _shows_text(pipeline: Pipeline) -> bool:
    """Return whether what a reading pipeline prints is text, and no count, digest or status."""
    for stage in pipeline:
        if stage.writes or stage.program in _COUNTS:
            return False
        if (stage.program in _GREPS or git_words(stage)[:1] == ("grep",)) and (
            has_option(stage, "c", "--count") or has_option(stage, "q", "--quiet")
        ):
            return False
        if git_words(stage)[:1] and git_words(stage)[0] in _NO_TEXT_GIT:
            return False
    return True


def _numbers(stage: Stage) -> bool:
    """Return whether a stage may put numbers before lines."""
    program = stage.program
    if program in _GREPS or git_words(stage)[:1] == ("grep",):
        return program in {"ag", "ack"} or has_option(stage, "n", "--line-number")
    if program in {"cat", "bat"}:
        return has_option(stage, "n", "--number") or has_option(stage, "b", "--number-nonblank")
    if program in {"awk", "gawk", "perl"}:
        return any("NR" in word or "$." in word for word in stage.arguments)
    if program == "sed":
        return any("=" in word.split(";") or word.endswith("=") for word in stage.arguments)
    python = python_call(stage)
    if python is not None:
        code = (python.code or "") + stage.heredoc
        return "enumerate" in code or "range(" in code
    return program in {"nl", "bat", "view", "open", "less"} or "edit" in program
