"""Regret: how often what was pruned is fetched again, against what was kept, at the same age.

Old outputs are fetched again less often than new ones, and pruned outputs are older than kept
ones. So the hazard (first re-fetches per output and turn at risk) is taken age by age, and the
pruned outputs' is compared with what kept outputs of the same ages would have had.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray, IntArray
from pipeline.analysis.behaviour.refetch import NEVER, Outputs, Refetches

MAX_AGE = 100
"""Ages in turns beyond this are one class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """Exposure and first re-fetches by age in turns, for pruned and kept outputs."""

    pruned_at_risk: FloatArray
    """Shape (MAX_AGE + 1,): output-turns spent pruned at that age."""
    kept_at_risk: FloatArray
    pruned_events: FloatArray
    kept_events: FloatArray

    def __add__(self, other: "Hazard") -> "Hazard":
        return Hazard(
            pruned_at_risk=self.pruned_at_risk + other.pruned_at_risk,
            kept_at_risk=self.kept_at_risk + other.kept_at_risk,
            pruned_events=self.pruned_events + other.pruned_events,
            kept_events=self.kept_events + other.kept_events,
        )

    @property
    def pruned_rate(self) -> float:
        """First re-fetches per pruned output and turn; NaN where nothing was pruned."""
        return _divided(float(self.pruned_events.sum()), float(self.pruned_at_risk.sum()))

    @property
    def matched_kept_rate(self) -> float:
        """The same for kept outputs, weighted to the ages of the pruned ones.

        Ages at which no output was kept are left out on both sides.
        """
        both = (self.kept_at_risk > 0) & (self.pruned_at_risk > 0)
        rates = self.kept_events[both] / self.kept_at_risk[both]
        weights = self.pruned_at_risk[both]
        return _divided(float((rates * weights).sum()), float(weights.sum()))

    @property
    def ratio(self) -> float:
        """Hazard of pruned over kept outputs at the same ages; NaN where undefined."""
        both = (self.kept_at_risk > 0) & (self.pruned_at_risk > 0)
        observed = float(self.pruned_events[both].sum())
        rates = self.kept_events[both] / self.kept_at_risk[both]
        return _divided(observed, float((rates * self.pruned_at_risk[both]).sum()))


def no_hazard() -> Hazard:
    """Return a hazard without exposure."""
    zeros = np.zeros(MAX_AGE + 1)
    return Hazard(pruned_at_risk=zeros, kept_at_risk=zeros, pruned_events=zeros, kept_events=zeros)


def hazard_of(
    outputs: Outputs,
    refetches: Refetches,
    *,
    eligible: np.ndarray,
    last_turn: IntArray,
    pruned_turn: IntArray,
) -> Hazard:
    """Return the hazard of one arm's outputs in a batch.

    An output is at risk from the turn after its own to its first re-fetch or the run's end, as
    kept before `pruned_turn` and as pruned from then on.

    Args:
        outputs: the batch.
        refetches: of the batch.
        eligible: which outputs could be fetched again, and belong to the arm.
        last_turn: last turn of each output's run.
        pruned_turn: turn from which the output was not shown; `NEVER` if it always was.
    """
    event = np.full(len(outputs.run), NEVER)
    # Reads come in order, so the first write of a reversed pass is the earliest.
    event[refetches.source[::-1]] = outputs.turn[refetches.read[::-1]]
    born = outputs.turn[eligible]
    event, pruned = event[eligible], pruned_turn[eligible]
    end = np.minimum(event, last_turn[eligible])
    kept_until = np.minimum(end, pruned - 1)
    return Hazard(
        kept_at_risk=_ages_between(np.ones_like(born), kept_until - born),
        pruned_at_risk=_ages_between(np.maximum(pruned - born, 1), end - born),
        kept_events=_at_age((event - born)[(event != NEVER) & (event < pruned)]),
        pruned_events=_at_age((event - born)[(event != NEVER) & (event >= pruned)]),
    )


def _ages_between(first: IntArray, last: IntArray) -> FloatArray:
    """Return, for each age, how many of the closed ranges hold it."""
    some = last >= first
    low = np.minimum(first[some], MAX_AGE)
    high = np.minimum(last[some], MAX_AGE)
    steps = np.bincount(low, minlength=MAX_AGE + 2).astype(np.float64)
    steps -= np.bincount(high + 1, minlength=MAX_AGE + 2)
    held = np.cumsum(steps)[: MAX_AGE + 1]
    # What lies beyond the last age class is exposure in it.
    beyond = np.maximum(last[some], MAX_AGE) - np.maximum(first[some], MAX_AGE)
    held[MAX_AGE] += float(beyond.sum())
    return held


def _at_age(ages: IntArray) -> FloatArray:
    counts = np.bincount(np.minimum(ages, MAX_AGE), minlength=MAX_AGE + 1)
    return counts.astype(np.float64)


def _divided(above: float, below: float) -> float:
    return above / below if below > 0 else float("nan")
