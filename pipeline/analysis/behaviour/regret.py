"""Regret: how often what was pruned is fetched again, against what was kept, at the same age.

Old outputs are fetched again less often than new ones, and pruned outputs are older than kept
ones. So the hazard (first re-fetches per output and turn at risk) is taken age by age, and the
pruned outputs' is compared with what kept outputs of the same ages would have had.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray, IntArray
from pipeline.analysis.behaviour.refetch import NEVER, Outputs, Refetches
from pipeline.analysis.bootstrap import Estimate, statistic, unknown

MAX_AGE = 100
"""Ages in turns beyond this are one class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """Exposure and first re-fetches by age in turns, for pruned and kept outputs.

    Every array has shape (rows, MAX_AGE + 1); a row is a run, or an instance with all its runs.
    """

    pruned_at_risk: FloatArray
    """Output-turns spent pruned at that age."""
    kept_at_risk: FloatArray
    pruned_events: FloatArray
    kept_events: FloatArray

    @property
    def pruned_rate(self) -> float:
        """First re-fetches per pruned output and turn; NaN where nothing was pruned."""
        return _divided(float(self.pruned_events.sum()), float(self.pruned_at_risk.sum()))

    @property
    def matched_kept_rate(self) -> float:
        """The same for kept outputs, weighted to the ages of the pruned ones.

        Ages at which no output was kept are left out on both sides.
        """
        kept, at_risk = self.kept_at_risk.sum(axis=0), self.pruned_at_risk.sum(axis=0)
        both = (kept > 0) & (at_risk > 0)
        rates = self.kept_events.sum(axis=0)[both] / kept[both]
        return _divided(float((rates * at_risk[both]).sum()), float(at_risk[both].sum()))

    def ratio(self, counts: FloatArray) -> Estimate:
        """Return the hazard of pruned over kept outputs at the same ages.

        Args:
            counts: from `resample_counts`, for the rows.
        """
        if not len(self.pruned_at_risk):
            return unknown(0, null=1.0)
        return statistic(self._ratios, counts=counts, null=1.0)

    def _ratios(self, weights: FloatArray) -> FloatArray:
        """Return the ratio under each row of weights; infinite where only pruned outputs came back.

        Ages without exposure on both sides are left out, so it is NaN where nothing was pruned.
        """
        at_risk, kept = weights @ self.pruned_at_risk, weights @ self.kept_at_risk
        both = (at_risk > 0) & (kept > 0)
        observed = np.where(both, weights @ self.pruned_events, 0.0).sum(axis=1)
        rates = np.divide(weights @ self.kept_events, kept, out=np.zeros_like(kept), where=both)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: FloatArray = observed / (rates * at_risk).sum(axis=1)
        return ratios

    def by_group(self, group: IntArray, n_groups: int) -> "Hazard":
        """Return the hazard with the rows of each group added up; a row of group -1 is left out."""
        kept = group >= 0

        def added(values: FloatArray) -> FloatArray:
            total = np.zeros((n_groups, MAX_AGE + 1))
            np.add.at(total, group[kept], values[kept])
            return total

        return Hazard(**{name: added(getattr(self, name)) for name in self.__dataclass_fields__})


def stacked(hazards: Sequence[Hazard]) -> Hazard:
    """Return the rows of all hazards, in order."""
    empty = [np.zeros((0, MAX_AGE + 1))]
    return Hazard(
        **{
            name: np.concatenate([*(getattr(h, name) for h in hazards), *empty])
            for name in Hazard.__dataclass_fields__
        }
    )


def hazard_of(
    outputs: Outputs,
    refetches: Refetches,
    *,
    n_runs: int,
    eligible: np.ndarray,
    last_turn: IntArray,
    pruned_turn: IntArray,
) -> Hazard:
    """Return the hazard of the outputs of a batch, one row a run.

    An output is at risk from the turn after its own to its first re-fetch or the run's end, as
    kept before `pruned_turn` and as pruned from then on.

    Args:
        outputs: the batch.
        refetches: of the batch.
        n_runs: runs of the batch.
        eligible: which outputs could be fetched again.
        last_turn: last turn of each output's run.
        pruned_turn: turn from which the output was not shown; `NEVER` if it always was.
    """
    event = np.full(len(outputs.run), NEVER)
    # Reads come in order, so the first write of a reversed pass is the earliest.
    event[refetches.source[::-1]] = outputs.turn[refetches.read[::-1]]
    born, run = outputs.turn[eligible], outputs.run[eligible]
    event, pruned = event[eligible], pruned_turn[eligible]
    end = np.minimum(event, last_turn[eligible])
    kept_until = np.minimum(end, pruned - 1)

    def ages(first: IntArray, last: IntArray) -> FloatArray:
        return _ages_between(run, first, last, n_runs=n_runs)

    def at_age(which: np.ndarray) -> FloatArray:
        age = np.minimum((event - born)[which], MAX_AGE)
        return _counted(run[which] * (MAX_AGE + 1) + age, (n_runs, MAX_AGE + 1))

    return Hazard(
        kept_at_risk=ages(np.ones_like(born), kept_until - born),
        pruned_at_risk=ages(np.maximum(pruned - born, 1), end - born),
        kept_events=at_age((event != NEVER) & (event < pruned)),
        pruned_events=at_age((event != NEVER) & (event >= pruned)),
    )


def _ages_between(run: IntArray, first: IntArray, last: IntArray, *, n_runs: int) -> FloatArray:
    """Return, for each run and age, how many of the run's closed ranges hold it."""
    some = last >= first
    run, first, last = run[some], first[some], last[some]
    shape = (n_runs, MAX_AGE + 2)
    row = run * (MAX_AGE + 2)
    steps = _counted(row + np.minimum(first, MAX_AGE), shape)
    steps -= _counted(row + np.minimum(last, MAX_AGE) + 1, shape)
    held: FloatArray = np.cumsum(steps, axis=1)[:, : MAX_AGE + 1]
    # What lies beyond the last age class is exposure in it.
    beyond = np.maximum(last, MAX_AGE) - np.maximum(first, MAX_AGE)
    held[:, MAX_AGE] += np.bincount(run, weights=beyond, minlength=n_runs)
    return held


def _counted(places: IntArray, shape: tuple[int, int]) -> FloatArray:
    counts = np.bincount(places, minlength=shape[0] * shape[1])
    return counts.reshape(shape).astype(np.float64)


def _divided(above: float, below: float) -> float:
    return above / below if below > 0 else float("nan")
