"""What pairs that are not there could have done to a solve rate, and when that is too many.

A contrast uses the instances that are complete in both arms. Those that are not are never
dropped in silence: they are counted by arm and cause, the two worst cases bound what they could
have changed, and above the plan's share the contrast is refused unless it was asked for.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.problem import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstCase:
    """The difference in solve rate, bounded over everything the lost runs could have been."""

    low: float
    high: float
    n_planned: int
    n_paired: int


def worst_case_difference(control: FloatArray, treatment: FloatArray) -> WorstCase:
    """Return bounds for treatment minus control in solve rate over *all* planned instances.

    Each lost run counts once as solved and once as not, whichever hurts (or helps) most.

    Args:
        control: resolved as 0 or 1, shape (instances, planned seeds), NaN where lost.
        treatment: the same instances; its number of planned seeds may differ.
    """
    complete = ~np.isnan(control).any(axis=1) & ~np.isnan(treatment).any(axis=1)

    def mean_filled(values: FloatArray, lost_as: float) -> float:
        filled = np.where(np.isnan(values), lost_as, values)
        return float(filled.mean(axis=1).mean()) if len(values) else float("nan")

    return WorstCase(
        low=mean_filled(treatment, 0.0) - mean_filled(control, 1.0),
        high=mean_filled(treatment, 1.0) - mean_filled(control, 0.0),
        n_planned=len(control),
        n_paired=int(complete.sum()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LostPairs:
    """The planned pairs of a contrast that cannot be used, and why."""

    n_planned: int
    n_lost: int
    causes: Mapping[str, Mapping[str, int]]
    """Arm to cause (a failure class, `not run` or `not graded`) to lost runs."""
    worst_case: WorstCase | None
    """None without any grade."""

    @property
    def share(self) -> float:
        """Share of planned instances without a usable pair; NaN when none was planned."""
        return self.n_lost / self.n_planned if self.n_planned else float("nan")

    @property
    def sentence(self) -> str:
        """How many, by arm and cause, and what they could have changed."""
        causes = "; ".join(
            f"{arm}: " + ", ".join(f"{n} {cause}" for cause, n in sorted(found.items()))
            for arm, found in self.causes.items()
            if found
        )
        words = f"{self.n_lost} of {self.n_planned} pairs are lost (runs of {causes})"
        if self.worst_case is None:
            return words
        low, high = 100 * self.worst_case.low, 100 * self.worst_case.high
        return f"{words}; worst cases {low:+.1f} to {high:+.1f} points"


def lost_pairs(control: ArmOutcomes, treatment: ArmOutcomes) -> LostPairs:
    """Return the pairs that are lost; while nothing is graded, those that did not run."""
    graded = bool(control.graded.any() or treatment.graded.any())
    usable = [arm.graded if graded else arm.complete for arm in (control, treatment)]
    return LostPairs(
        n_planned=len(usable[0]),
        n_lost=int((~(usable[0] & usable[1])).sum()),
        causes={arm.arm: _causes(arm, graded=graded) for arm in (control, treatment)},
        worst_case=worst_case_difference(control.resolved, treatment.resolved) if graded else None,
    )


def _causes(arm: ArmOutcomes, *, graded: bool) -> Counter[str]:
    causes: Counter[str] = Counter()
    lost = ~arm.done | np.isnan(arm.resolved) if graded else ~arm.done
    unplanned = ~arm.planned.any(axis=1)
    for at in np.argwhere(lost & arm.planned):
        place = int(at[0]), int(at[1])
        causes["not graded" if arm.done[place] else arm.failure_class[place] or "not run"] += 1
    if unplanned.any():
        causes["not planned"] = int(unplanned.sum())
    return causes


_LAUNCH_AGAIN = "launch the sweep again, then grade it: only what is missing is done"
_COMPARE_THE_REST = "ingest what is missing, or compare complete pairs only: --allow-invalid"


def refused_contrasts(
    groups: Sequence[Group],
    *,
    reference: str,
    max_share: float,
    was_launched: bool = True,
    ended_arms: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield a problem for each contrast with a larger share of lost pairs than `max_share`.

    Only a folder that `was_launched` can be launched again; others get another remedy. `ended_arms`
    have no more pairs by a planned look, and are not judged here.
    """
    remedy = _LAUNCH_AGAIN if was_launched else _COMPARE_THE_REST
    for group in groups:
        if reference not in group.arms:
            continue
        for name, arm in group.arms.items():
            if name == reference or name in ended_arms:
                continue
            lost = lost_pairs(group.arms[reference], arm)
            if lost.share > max_share:
                yield Problem(
                    code="lost_pairs",
                    arms=(reference, name),
                    sentence=f"{name} against {reference} ({group.title}) is refused: "
                    f"{lost.sentence}; the plan allows {100 * max_share:g}% to be lost",
                    remedy=remedy,
                )
