"""Arms whose line pruner runs beside the model server and judges each output as it arrives.

Owns what a pruner is asked and how its answer changes the view (docs/methods.md, Line pruners), the
same for all of them; `pipeline/pruners` has the models. The answer is a decision of the run, so
replay needs no pruner. An output without an answer, or with an error instead, is shown whole.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Count, Natural, Seconds
from pipeline.fields.identity import Runtime, Science, digest_of, science_of
from pipeline.views.kept_lines import FILTERED, BoolArray, count_lines, split_lines
from pipeline.views.line_edits import line_edit
from pipeline.views.policy import Ask, AuxRequest, CallKind, Policy, PruneRequest
from pipeline.views.shown import arrived_outputs
from pipeline.views.trajectory import Decision, Edit, Edits, Message, Trajectory, Turn

WindowTokens = Annotated[int, Field(ge=64)]
"""With room for special tokens, and for some of a query and of a text."""


@dataclass(frozen=True, kw_only=True)
class LinePruning(Parameters):
    """What all line pruners have: the size from which they act, and the query."""

    example: ClassVar[Mapping[str, Any]] = {"min_chars": 100}

    min_chars: Science[Natural] = 500
    """Shorter outputs are left alone."""
    query_chars: Science[Count] = 2000
    """Longest query that is put to the pruner; its end is kept."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return LinePrunerPolicy(self, context)

    def query(self, turn: Turn, message: Message, trajectory: Trajectory) -> str | None:
        """Return what the pruner is told of the agent's interest in the output `message`."""
        return words_before(turn, message, trajectory)


@dataclass(frozen=True, kw_only=True)
class LocalPruning(LinePruning):
    """A line pruner whose model runs in the worker."""

    model: Science[str]
    """Name on the hub, looked for in the offline cache, or a folder."""
    revision: Science[str | None] = None
    path: Runtime[str | None] = None
    """Folder where the model was staged, instead of the cache."""
    device: Runtime[str] = "cpu"
    """As PyTorch names it: `cpu`, `cuda`, `cuda:1`."""
    dtype: Science[Literal["float32", "bfloat16"]] = "float32"
    window_tokens: Science[WindowTokens] = 512
    """Most tokens that the model sees at once, special ones included."""
    batch_windows: Runtime[Count] = 8
    """Windows in one forward pass, which bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class ServedPruning(LinePruning):
    """A line pruner that is a server of its own."""

    url: Runtime[str | None] = None
    """Address of the server, such as http://127.0.0.1:8000; must be given."""
    timeout_s: Runtime[Seconds] = 60.0


class LinePrunerPolicy:
    """Asks about the long outputs of a turn as they arrive, and shows the lines that stay."""

    def __init__(self, spec: LinePruning, context: PolicyContext) -> None:
        self._spec, self._marker = spec, context.placeholder or FILTERED
        self._name = f"{spec.kind}-{digest_of(science_of(spec), length=8)}"

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits that shorten the outputs that just came."""
        asked = [
            output
            for message, text in arrived_outputs(trajectory, standing, self._spec.min_chars)
            if self._is_asked(output := self._output(message, text, trajectory))
        ]
        if not asked:
            return ()
        request = AuxRequest(
            kind=CallKind.LINES,
            outputs=[output.request for output in asked],
            pruner=self._name,
        )
        answers = kept_by_message(ask(request).content, self._name)
        return list(self._edits(asked, answers))

    def _is_asked(self, output: "_Output") -> bool:
        # Without a question nothing is pruned: the agent wants to see all of it.
        has_query = output.request.query is not None or not self._spec.asks_focus
        return has_query and len(output.request.text) >= self._spec.min_chars

    def _output(self, message: Message, text: str, trajectory: Trajectory) -> "_Output":
        before, judged, after = framed(message, text)
        request = self._request(message, judged, trajectory)
        return _Output(message=message, request=request, frame=(before, after))

    def _request(self, message: Message, text: str, trajectory: Trajectory) -> PruneRequest:
        query = self._spec.query(trajectory.turns[-1], message, trajectory)
        return PruneRequest(
            message_index=message.index,
            history=trajectory.messages[: message.index],
            command=message.command,
            text=text,
            query=query[-self._spec.query_chars :] if query else None,
        )

    def _edits(
        self,
        asked: Sequence["_Output"],
        answers: Mapping[int, Sequence[Sequence[int]]],
    ) -> Iterator[Edit]:
        for output in asked:
            ranges, text = answers.get(output.message.index), output.request.text
            if ranges is None:
                continue
            kept = np.zeros(count_lines(text), dtype=bool)
            for first, last in ranges:
                kept[first - 1 : last] = True
            yield from line_edit(
                output.message,
                text,
                with_cheap_gaps(kept, text, self._marker),
                marker=self._marker,
                frame=output.frame,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Output:
    """An output to be judged: its message, the request, and the text around the output."""

    message: Message
    request: PruneRequest
    frame: tuple[str, str]


def framed(message: Message, text: str) -> tuple[str, str, str]:
    """Return what stands before the output in `text`, the output itself, and what follows it.

    The return code is not a line of the output and always stays. Where `text`, which is shown of
    `message`, has lost the frame or the frame is unknown, all of it is output.
    """
    before, after = message.frame
    end = len(text) - len(after)
    if end < len(before) or not (text.startswith(before) and text.endswith(after)):
        return "", text, ""
    return before, text[len(before) : end], after


def kept_by_message(answer: str, pruner: str) -> dict[int, Sequence[Sequence[int]]]:
    """Return the ranges of kept lines by message; those left whole are not in it.

    An answer of another pruner, or of none, leaves all whole.
    """
    if not is_answer_of(answer, pruner):
        return {}
    entries: Sequence[Mapping[str, Any]] = json.loads(answer)["outputs"]
    return {e["message"]: e["kept"] for e in entries if e.get("kept") is not None}


def is_answer_of(answer: str, pruner: str) -> bool:
    """Return whether a recorded answer is that of `pruner`, with its parameters."""
    return answer != "" and json.loads(answer)["pruner"] == pruner


def pruner_failures(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Return how many outputs a line pruner was asked about, and on how many of them it failed."""
    entries = [
        entry
        for decision in decisions
        if decision.kind == CallKind.LINES and decision.content
        for entry in json.loads(decision.content)["outputs"]
    ]
    return len(entries), sum("error" in entry for entry in entries)


def with_cheap_gaps(kept: BoolArray, text: str, marker: str) -> BoolArray:
    """Return `kept` with every gap that is no longer than the marker that would stand for it."""
    lines, filled = split_lines(text), kept.copy()
    for stays, group in groupby(range(len(lines)), key=lambda i: bool(kept[i])):
        gap = list(group)
        shown = marker.replace("{n}", str(len(gap))) + "\n"
        if not stays and sum(len(lines[i]) for i in gap) <= len(shown):
            filled[gap] = True
    return filled


def words_before(turn: Turn, message: Message, trajectory: Trajectory) -> str | None:
    """Return what the agent said and ran before `message`, or the task where it said nothing."""
    said = [part.strip() for part in (turn.assistant.reasoning, turn.assistant.content) if part]
    if not any(said):
        said = [m.content for m in trajectory.messages[:2] if m.role == "user"]
    return "\n".join([*said, message.command or ""]).strip() or None
