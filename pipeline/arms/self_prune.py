"""`self_prune`: the same model, in a separate call, lists the lines of a new output that it needs.

One auxiliary call per turn, at temperature 0, before the model's next step (docs/methods.md, Line
pruners). The call is a conversation of its own: the task, the agent's last words, and the turn's
outputs with numbered lines. An answer that names no lines prunes nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.kept_lines import BoolArray, count_lines, gaps_filled, split_lines
from pipeline.views.line_edits import line_edit
from pipeline.views.policy import Ask, AuxRequest, CallKind, Policy
from pipeline.views.shown import arrived_outputs
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory

_SYSTEM = (
    "You shorten outputs of commands for a coding agent. You see the task, what the agent said"
    " last, the commands and their outputs with numbered lines. Name the lines that the agent needs"
    " for the rest of its task, with enough around them to be understood. Keep what you are unsure"
    " about. Answer with ranges of line numbers only, such as: 1-4, 17, 30-42. Answer ALL to keep"
    " everything and NONE to keep nothing."
)

_RANGE = re.compile(r"(\d+)(?:\s*(?:-|\N{EN DASH}|to)\s*(\d+))?")
_RANGES = re.compile(rf"(?i)\W*(?:lines?:?\s*)?{_RANGE.pattern}(?:[\s,;]+{_RANGE.pattern})*\W*")
"""A line of an answer that is nothing but ranges; prose may have numbers in it too."""


@dataclass(frozen=True, kw_only=True)
class SelfPrune(Parameters):
    """The same model, in a separate call, lists the lines of each new output that it needs."""

    source: ClassVar[str] = "the self-pruning baseline of arXiv 2607.18213"
    example: ClassVar[Mapping[str, Any]] = {"min_chars": 100}

    kind: Science[Literal["self_prune"]] = "self_prune"
    min_chars: Science[Natural] = 500
    """Shorter outputs are left alone."""
    fill_gaps: Science[bool] = True
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return SelfPrunePolicy(self, context)


class SelfPrunePolicy:
    """Asks about the long outputs of a turn as they arrive, and shows what the answer keeps."""

    def __init__(self, spec: SelfPrune, context: PolicyContext) -> None:
        self._spec, self._marker = spec, context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits that shorten the outputs that just came."""
        outputs = arrived_outputs(trajectory, standing, self._spec.min_chars)
        if not outputs:
            return ()
        request = AuxRequest(
            kind=CallKind.PRUNE,
            messages=question(trajectory, outputs),
            temperature=self._spec.temperature,
            max_tokens=self._spec.max_tokens,
        )
        counts = [count_lines(text) for _, text in outputs]
        kept = answered_lines(ask(request).content, sum(counts))
        if kept is None:
            return ()
        parts = np.split(kept, np.cumsum(counts)[:-1])
        return list(self._edits(outputs, parts))

    def _edits(
        self, outputs: Sequence[tuple[Message, str]], parts: Sequence[BoolArray]
    ) -> Iterator[Edit]:
        for (message, text), kept in zip(outputs, parts, strict=True):
            filled = gaps_filled(kept) if self._spec.fill_gaps else kept
            yield from line_edit(message, text, filled, marker=self._marker)


def question(
    trajectory: Trajectory, outputs: Sequence[tuple[Message, str]]
) -> list[dict[str, str]]:
    """Return the conversation that asks about the outputs of one turn, numbered consecutively."""
    task = next((m.content for m in trajectory.messages if m.role == "user"), "")
    said = trajectory.turns[-1].assistant
    words = "\n".join(part for part in (said.reasoning, said.content) if part)
    parts = [f"<task>\n{task}\n</task>", f"<agent>\n{words or '-'}\n</agent>"]
    number = 1
    for message, text in outputs:
        lines = split_lines(text)
        numbered = "\n".join(f"{n}: {t.rstrip(chr(10))}" for n, t in enumerate(lines, start=number))
        parts.append(f"<command>\n{message.command or message.tool}\n</command>")
        parts.append(f"<output>\n{numbered}\n</output>")
        number += len(lines)
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def answered_lines(answer: str, n_lines: int) -> BoolArray | None:
    """Return which lines an answer keeps; None where it names none of them, or all."""
    words = re.sub(r"(?s)^.*</think>", "", answer).strip()
    kept = np.zeros(n_lines, dtype=bool)
    if re.match(r"(?i)none\b", words):
        return kept
    for line in filter(_RANGES.fullmatch, words.splitlines()):
        for first, last in _RANGE.findall(line):
            kept[max(int(first) - 1, 0) : int(last or first)] = True
    return kept if kept.any() and not kept.all() else None
