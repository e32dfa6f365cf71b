"""Observation masking: only the newest turns' outputs stay.

See docs/methods.md, Masking and summaries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    acted_turns,
    content_edit,
    older_outputs,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory

REASON = "mask"
WORDING = "Old environment output: ({lines} lines omitted)"


@dataclass(frozen=True, kw_only=True)
class ObservationMask(Parameters):
    """Only the newest turns' outputs stay; older ones become one line."""

    source: ClassVar[str] = "arXiv 2508.21433; SWE-agent's last_n_observations"
    tuned: ClassVar[str | None] = "keep_last_turns"
    example: ClassVar[Mapping[str, Any]] = {"keep_last_turns": 2}

    kind: Science[Literal["observation_mask"]] = "observation_mask"
    keep_last_turns: Science[Natural] = 10
    polling: Science[Natural] = 0
    """The window floats between `keep_last_turns` and this many more, so the cache breaks less."""
    always_keep: Science[tuple[str, ...]] = ()
    """Regular expressions; outputs of matching commands are never masked."""

    @property
    def for_example(self) -> Mapping[str, Any]:
        """The window made small; where it floats, it floats by one turn."""
        return {**self.example, **({"polling": 1} if self.polling else {})}

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return ObservationMaskPolicy(self, context)


class ObservationMaskPolicy:
    """Masks the outputs of all but the newest turns, in batches where polling is on."""

    def __init__(self, spec: ObservationMask, context: PolicyContext) -> None:
        self._spec = spec
        self._always_keep = [re.compile(pattern) for pattern in spec.always_keep]
        self._placeholder = WORDING if context.placeholder is None else context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits that mask what has left the window."""
        n_turns = len(acted_turns(trajectory))
        shown = n_turns - masked_turns(n_turns, self._spec.keep_last_turns, self._spec.polling)
        return [
            content_edit(message, placeholder_text(self._placeholder, message), REASON)
            for message in older_outputs(trajectory, standing, shown)
            if not self._is_kept(message)
        ]

    def _is_kept(self, message: Message) -> bool:
        return any(p.search(message.command or "") for p in self._always_keep)


def masked_turns(n_turns: int, keep: int, polling: int) -> int:
    """Return how many of the oldest turns are masked.

    The window grows from `keep` to `keep + polling` turns and then shrinks to `keep` at once, so
    that the prefix is cut once every `polling + 1` turns.
    """
    outside = max(0, n_turns - keep)
    return outside - outside % (polling + 1)
