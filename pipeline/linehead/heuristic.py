"""Labels without a judge: a line was worth keeping if the agent used it later.

Used means that the line came back in a later output, was quoted (in text, reasoning or a command),
named something that a later command names, or stood in the final patch as a changed or context
line. A baseline and a stand-in for tests: it cannot know of a line that was read once, understood
and never touched again, so it calls too many lines useless.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.linehead.label_table import LabelledOutput, labelled
from pipeline.linehead.recorded_run import RecordedRun
from pipeline.linehead.samples import Sample
from pipeline.linehead.settings import HeuristicSettings
from pipeline.shell.lines import distinct_lines
from pipeline.views.kept_lines import BoolArray, split_lines

_MIN_NAME_CHARS = 4

_FILE = re.compile(r"^(?:[-dlbcps][-rwxsStT]{9}\S*\s.*\s)?(?:\./)?(\S+)$")
"""A line that is one path, or a row of `ls -l` that ends in one."""

_DEFINITION = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Aftermath:
    """What happened after an output was shown."""

    lines: frozenset[str]
    """Comparable lines of later outputs and of the patch."""
    said: str
    """What the agent wrote: text, reasoning and commands."""
    commands: str


def heuristic_labels(
    samples: Sequence[Sample], settings: HeuristicSettings
) -> list[LabelledOutput]:
    """Return the samples with labels, in their order."""
    return [
        labelled(
            sample,
            used_lines(
                sample.text, aftermath(sample.run, sample.message_index, settings), settings
            ),
        )
        for sample in samples
    ]


def aftermath(run: RecordedRun, message_index: int, settings: HeuristicSettings) -> Aftermath:
    """Return what the run did after the message at `message_index`."""
    messages = run.trajectory.messages
    shown_at = messages[message_index].step_index
    horizon = settings.horizon_turns
    later = [
        m
        for m in messages[message_index + 1 :]
        # Results of the same turn were asked for before this one was seen.
        if m.step_index > shown_at and (horizon is None or m.step_index <= shown_at + horizon)
    ]
    outputs = [m for m in later if m.is_prunable]
    said = [t for m in later if m.role == "assistant" for t in (m.content, m.reasoning or "")]
    commands = "\n".join(m.command or "" for m in outputs)
    reread = [distinct_lines(m.printed, numbered=True) for m in outputs]
    patched = distinct_lines(_patched_text(run.patch)) if horizon is None else frozenset()
    return Aftermath(
        lines=frozenset().union(*reread, patched),
        said="\n".join([*said, commands]),
        commands=commands,
    )


def used_lines(text: str, after: Aftermath, settings: HeuristicSettings) -> BoolArray:
    """Return for every line of `text` whether it, or a close neighbour, was used."""
    used = np.array([_is_used(line, after, settings) for line in split_lines(text)], dtype=bool)
    near = used.copy()
    for shift in range(1, settings.margin_lines + 1):
        near[shift:] |= used[:-shift]
        near[:-shift] |= used[shift:]
    return near


def _is_used(line: str, after: Aftermath, settings: HeuristicSettings) -> bool:
    comparable = min(distinct_lines(line, numbered=True), default="")
    bare = comparable.strip()
    if len(bare) >= settings.min_chars and (comparable in after.lines or bare in after.said):
        return True
    named = _FILE.match(bare) or _DEFINITION.match(bare)
    return named is not None and _is_named(named[1], after.commands)


def _is_named(name: str, commands: str) -> bool:
    if len(name) < _MIN_NAME_CHARS or name not in commands:
        return False
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", commands) is not None


def _patched_text(patch: str) -> str:
    """Return the lines of the old files that a diff shows: removed ones and context."""
    return "\n".join(
        line[1:]
        for line in patch.splitlines()
        if line[:1] in ("-", " ") and not line.startswith("--- ")
    )
