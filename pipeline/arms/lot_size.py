"""Pruning in lots: outputs gather until together they are worth a cut of the cached prefix.

See docs/methods.md, Lot size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.accounting.break_even import Prices, lot_size
from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_cold,
    live_outputs,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Trajectory, Turn


@dataclass(frozen=True, kw_only=True)
class LotSize(Parameters):
    """Old outputs gather until they hold the lot size that the prices call for, then all go."""

    source: ClassVar[str] = "the economic order quantity, as in hermes-agent pull request 62389"
    example: ClassVar[Mapping[str, Any]] = {"cached_price": 0.9}

    kind: Science[Literal["lot_size"]] = "lot_size"
    input_price: Science[Amount] = 1.0
    cached_price: Science[Amount] = 0.1
    write_price: Science[Amount | None] = None
    """Prices per token; only their ratios matter. Without a write price it is the input price."""
    ttl_s: Science[Amount | None] = None
    """Idle seconds after which the cache has lost the prefix; None: never."""
    cleanup_tokens: Science[Natural] = 0
    """Tokens that cleaning up adds to each call; this rule asks nobody."""
    protect_last_turns: Science[Natural] = 1

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return LotSizePolicy(self, context)


class LotSizePolicy:
    """Prunes all old outputs at once, when they have become a lot."""

    def __init__(self, spec: LotSize, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._tokens = ShownTokens(context.counter)
        self._prices = Prices(
            input=spec.input_price, cached=spec.cached_price, output=0.0, write=spec.write_price
        )

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits of a whole lot; none while the old outputs are fewer."""
        live = live_outputs(trajectory, standing, protect_last_turns=self._spec.protect_last_turns)
        texts = {k: placeholder_text(self._placeholder, m, k) for k, m in live.items()}
        saved = {
            k: self._tokens.of_content(m, standing) - self._tokens.of_text(texts[k])
            for k, m in live.items()
        }
        lot = [k for k, tokens in saved.items() if tokens > 0]
        if not lot:
            return ()
        gathered = sum(saved[k] for k in lot)
        behind = trajectory.messages[live[lot[0]].index :]
        again = sum(self._tokens.of_message(m, standing) for m in behind) - gathered
        turns = acted_turns(trajectory)
        wanted = lot_size(
            self._prices,
            again_tokens=again,
            growth_tokens=_output_tokens(turns) / len(turns),
            cleanup_tokens=self._spec.cleanup_tokens,
            cold_share=self._cold_share(turns),
        )
        if gathered < wanted and not is_cold(trajectory, self._spec.ttl_s):
            return ()
        return [content_edit(live[k], texts[k], "lot") for k in lot]

    def _cold_share(self, turns: Sequence[Turn]) -> float:
        """Return the share of the turns so far after which the cache had lost the prefix."""
        ttl_s = self._spec.ttl_s
        waits = [max(m.waited_s or 0.0 for m in turn.observations) for turn in turns]
        return 0.0 if ttl_s is None else sum(wait > ttl_s for wait in waits) / len(waits)


def _output_tokens(turns: Sequence[Turn]) -> int:
    return sum(m.n_tokens for turn in turns for m in turn.observations if m.is_prunable)
