"""The analysis plan: what will be compared, fixed before anything is looked at.

Hashed into the lock. A result that the plan names is confirmatory; everything else that analysis
prints carries the word "exploratory".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.fields.bounds import Count, Share
from pipeline.fields.identity import Science, added_science, digest_of

RefetchSource = Literal["one", "union"]
"""Whether one earlier read must have shown a re-fetch's lines, or the earlier reads together."""

Spending = Literal["obrien_fleming", "pocock"]
"""How the error is spread over looks: almost none of it early, or nearly alike."""


@dataclass(frozen=True, kw_only=True)
class AnalysisPlan:
    """Decisions that must not depend on the data."""

    reference: Science[str] = "full_history"
    """The arm that the others are compared with."""
    contrasts: Science[tuple[str, ...]] = ()
    """Primary arms, each against the reference; empty: every other arm of the sweep."""
    margin: Science[Share] = 0.05
    """Largest loss in solve rate that would still count as "not worse", as a share."""
    n_instances: Science[Count | None] = None
    """Instances a cell is meant to have; None: as many as the plan holds."""
    n_seeds: Science[Count | None] = None
    """Seeds a cell is meant to have; None: as many as the plan holds."""
    prespecified_seed: Science[int] = 0
    """The seed that Tango's interval uses where the bootstrap is not to be trusted."""
    exclusions: Science[tuple[str, ...]] = ()
    """Instance ids left out of every contrast, decided beforehand and listed in the report."""
    holm_outcomes: Science[tuple[str, ...]] = ("solve_rate", "input_tokens")
    """Outcomes with a Holm family each: all primary arms of one model on one benchmark."""
    max_missing_share: Science[Share] = 0.01
    """More lost pairs than this, and a contrast is refused unless asked for."""
    resamples: Science[Count] = 10_000
    resampling_seed: Science[int] = 20_261_010
    """Fixed, so that the same tables give the same digits."""
    pricing: Science[str] = "flat"
    """The price list (conf/pricing) whose cost is primary."""
    refetch_source: Science[RefetchSource] = "one"
    """What a read is compared with: each earlier read of its run, or their union."""
    window_may_bind: Science[bool] = added_science(False)
    """The context window is part of what is studied: that it ends more runs of one arm than of
    another refuses no sweep."""
    looks: Science[tuple[float, ...]] = added_science(())
    """Shares of the instances at which one may look and stop an arm; empty: at the end only."""
    adjust_for_prior: Science[bool] = added_science(False)
    """Differences in solve rate are given over all instances of `difficulty` too, by regression."""
    spending: Science[Spending] = added_science("obrien_fleming")
    """How the looks share the error."""

    def __post_init__(self) -> None:
        """Refuse looks that do not lead to the end."""
        in_order = list(self.looks) == sorted(set(self.looks))
        if self.looks and not (in_order and self.looks[0] > 0 and self.looks[-1] == 1):
            raise ValueError(
                f"looks: {list(self.looks)} must increase from above 0 to 1 (the end), as "
                "[0.25, 0.5, 0.75, 1.0] do"
            )

    def look_order(self, instance_ids: Sequence[str]) -> list[str]:
        """Return the instances in the random order in which they enter the looks.

        Every instance has a place of its own: leaving some out does not move the others.
        """
        return sorted(
            instance_ids,
            key=lambda name: digest_of(["look", self.resampling_seed, name], length=64),
        )
