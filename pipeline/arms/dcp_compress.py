"""A tool with which the model compresses ranges of its history, as in Dynamic Context Pruning 3.

See docs/methods.md, What people run.

The model names a range of outputs and writes a summary of it. Summaries of earlier ranges that a
new range overlaps nest in its summary, so that nothing is summarized twice. Repeated outputs and
the commands of failed calls are cleaned up only then, since the cached prefix breaks there anyway.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.dedup import Dedup, DedupPolicy
from pipeline.arms.discard_anytime import n_results, stamps
from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.arms.purge_errors import PurgeErrors, PurgeErrorsPolicy
from pipeline.arms.summary_turn import replaced
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.offered_tool import Answered, OfferedTool
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    ShownTokens,
    acted_turns,
    changed,
    newest_turn,
    older_turns,
    output_ids,
)
from pipeline.views.trajectory import Edit, Edits, Part, Trajectory, Turn, merged

NAME = "compress"
REASON = "compress"


@dataclass(frozen=True, kw_only=True)
class DcpCompress(Parameters):
    """The model may compress ranges of its history and is reminded once the history is long."""

    source: ClassVar[str] = "practice: dynamic context pruning for opencode, version 3"
    example: ClassVar[Mapping[str, Any]] = {
        "nudge_from_tokens": 300,
        "nudge_every": 2,
        "purge_after_turns": 2,
    }

    kind: Science[Literal["dcp_compress"]] = "dcp_compress"
    nudge_from_tokens: Science[Natural] = 50_000
    """Of the view: below this there are no reminders."""
    urge_from_tokens: Science[Natural] = 150_000
    """Of the view: from here on every turn has a reminder, in stronger words."""
    nudge_every: Science[Count] = 5
    """Tool results between reminders, up to there."""
    purge_after_turns: Science[Natural] = 4
    """Turns after which a compression cuts the commands of failed calls."""
    protect_last_turns: Science[Natural] = 1

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tool with which the model compresses, whenever it likes."""
        return (_TOOL,)

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return DcpCompressPolicy(self, context)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """What a call asks for."""

    first: int
    last: int
    summary: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A range that is compressed, in messages; `end` is no part of it."""

    start: int
    end: int
    text: str


class DcpCompressPolicy:
    """Carries compressions out, cleans up along with them, and reminds in between."""

    def __init__(self, spec: DcpCompress, context: PolicyContext) -> None:
        self._spec = spec
        self._tokens = ShownTokens(context.counter)
        keep = spec.protect_last_turns
        self._cleanings = (
            DedupPolicy(Dedup(protect_last_turns=keep), context),
            PurgeErrorsPolicy(PurgeErrors(after_turns=spec.purge_after_turns)),
        )

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the compressions that the newest turn asked for, and the ids of its outputs."""
        turn = newest_turn(trajectory)
        if turn is None:
            return ()
        edits: list[Edit] = []
        for result in turn.observations:
            wanted = compression_of(result.command or "") if result.tool == NAME else None
            if wanted is not None:
                edits += self._compress(wanted, trajectory, merged(standing, edits))
        for cleaning in self._cleanings if edits else ():
            edits += cleaning.decide(trajectory, merged(standing, edits), ask)
        after = merged(standing, edits)
        edits += stamps(turn, trajectory, after, self._reminder(turn, trajectory, after))
        return changed(merged({}, edits).values(), standing)

    def _compress(self, wanted: Compression, trajectory: Trajectory, standing: Edits) -> list[Edit]:
        """Return the edits that put the summary in place of a range; none for an unusable one."""
        numbers = {m.index: k for k, m in output_ids(trajectory).items()}
        chosen = [
            turn
            for turn in older_turns(trajectory, self._spec.protect_last_turns)
            if any(
                wanted.first <= numbers.get(m.index, 0) <= wanted.last for m in turn.observations
            )
        ]
        if not chosen:
            return []
        start, end = chosen[0].assistant.index, chosen[-1].observations[-1].index + 1
        held = [numbers[i] for i in range(start, end) if i in numbers]
        nested = [b for b in blocks(trajectory, standing) if b.start < end and start < b.end]
        start = min([start, *(b.start for b in nested)])
        end = max([end, *(b.end for b in nested)])
        gone = changed(replaced(trajectory, standing, start, end, REASON), standing)
        if not gone:
            return []
        head = f"[Outputs {held[0]} to {held[-1]}, compressed]\n{wanted.summary}"
        text = "\n".join([head, *(b.text for b in nested)])
        return [*(_inserted(b.start, "") for b in nested), _inserted(start, text), *gone]

    def _reminder(self, turn: Turn, trajectory: Trajectory, standing: Edits) -> str:
        held = self._tokens.of_view(trajectory, standing)
        results, every = n_results(trajectory), self._spec.nudge_every
        is_time = results // every > (results - len(turn.observations)) // every
        if held >= self._spec.urge_from_tokens:
            return nudge(held, urges=True)
        return nudge(held, urges=False) if held >= self._spec.nudge_from_tokens and is_time else ""


def blocks(trajectory: Trajectory, standing: Edits) -> Iterator[Block]:
    """Yield the compressed ranges in force, in order."""
    open_at: int | None = None
    end = 0
    for turn in acted_turns(trajectory):
        index = turn.assistant.index
        taken = any(
            (edit := standing.get((index, part))) is not None and edit.reason == REASON
            for part in (Part.DROPPED, Part.CONTENT)
        )
        summary = standing.get((index, Part.INSERTED))
        starts = summary is not None and bool(summary.text)
        if open_at is not None and (starts or not taken):
            yield _block(open_at, end, standing)
            open_at = None
        if starts:
            open_at = index
        end = turn.observations[-1].index + 1
    if open_at is not None:
        yield _block(open_at, end, standing)


def _block(start: int, end: int, standing: Edits) -> Block:
    return Block(start=start, end=end, text=standing[start, Part.INSERTED].text)


def _inserted(at: int, text: str) -> Edit:
    return Edit(message_index=at, part=Part.INSERTED, text=text, reason=REASON)


def nudge(held: int, *, urges: bool) -> str:
    """Return the reminder at a size of the view, in tokens."""
    what = (
        "Compress what is finished before you go on"
        if urges
        else "If some stretch of it is finished, you may compress it"
    )
    return (
        f"[The history holds {held} tokens. {what}: {NAME} with the numbers of its first and last"
        " output and a summary puts the summary in their place.]"
    )


def compression_of(command: str) -> Compression | None:
    """Return what a call asks for: JSON arguments, or the line `compress 3 9 SUMMARY`."""
    words = command.split(maxsplit=3)
    if len(words) == 4 and words[0] == NAME:
        data: Any = {"first": words[1], "last": words[2], "summary": words[3]}
    else:
        try:
            data = json.loads(command)
        except (ValueError, RecursionError):
            return None
    if not isinstance(data, dict):
        return None
    first, last = (_as_id(data.get(end)) for end in ("first", "last"))
    summary = data.get("summary")
    if first is None or last is None or first > last:
        return None
    if not isinstance(summary, str) or not summary.strip():
        return None
    return Compression(first=first, last=last, summary=summary.strip())


def _as_id(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _answer(trajectory: Trajectory, command: str) -> Answered:
    wanted = compression_of(command)
    if wanted is None or not any(wanted.first <= k <= wanted.last for k in output_ids(trajectory)):
        text = f"{NAME} needs the numbers of a first and a last output, and a summary of them."
        return Answered(text=text, is_error=True)
    return Answered(text=f"Outputs {wanted.first} to {wanted.last} named for compression.")


_TOOL = OfferedTool(
    name=NAME,
    description=(
        "Put a summary in place of a finished stretch of the history: the outputs first to last,"
        " with the commands that led to them. You may use it in any answer."
    ),
    properties={
        "first": {"type": "integer", "description": "Number of the first output."},
        "last": {"type": "integer", "description": "Number of the last output."},
        "summary": {"type": "string", "description": "All that is still needed of them."},
    },
    required=("first", "last", "summary"),
    answer=_answer,
)
