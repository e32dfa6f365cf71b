"""What a planned look decides about an arm: go on, or stop for not worse, for worse, or as futile.

Looks are at shares of the instances, in the plan's random order, and a look is due once
all instances up to it are graded in the arm and in the reference. So a look decides the same
whenever it is taken, and nothing that ran ahead of it counts. Solve rates only: the statistic is
Tango's score against the margin and against 0. A difference over its own standard error would call
a loss of the margin "not worse" too often, since rates that happen to look good also look precise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, nan, sqrt
from typing import Literal

import numpy as np
from scipy.special import ndtr

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.looks import Adjusted, adjusted, boundaries
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.rate_difference import MIN_DIFFERING, TIE, Z, tango_interval, tango_score
from pipeline.plural import plural
from pipeline.spec.analysis import AnalysisPlan

MIN_CONDITIONAL_POWER = 0.1
"""Less chance than this to show "not worse" at the end, were the arms equal, and it is futile."""

Verdict = Literal["go on", "not worse", "worse", "futile", "not shown"]
"""`not shown`: the last look, and no claim holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The last look that is due of one arm, or the one at which it stopped."""

    arm: str
    look: int
    """From 1; 0 where none is due yet."""
    n_looks: int
    n_instances: int
    """Of this look; of the first one where none is due yet."""
    n_complete: int
    """Instances from the first on, in the order of the looks, that are graded in both arms."""
    waits_for: str
    """The first instance that is not graded in both arms; empty where all are."""
    boundary: float
    """z value that a claim needs at this look."""
    z_not_worse: float
    z_worse: float
    verdict: Verdict
    effect: Adjusted | None
    """Difference in solve rate, corrected for the looks; None before the arm has stopped."""

    @property
    def stops(self) -> bool:
        """True where no more runs of the arm are needed."""
        return self.verdict != "go on"

    @property
    def sentence(self) -> str:
        """What was decided; no rate is named while the arm goes on."""
        if not self.look:
            return (
                f"{self.arm}: no look is due; look 1 of {self.n_looks} needs the first "
                f"{plural(self.n_instances, 'instance')} graded; {self.n_complete} so far, next "
                f"{self.waits_for}"
            )
        where = (
            f"{self.arm}: look {self.look} of {self.n_looks}, "
            f"{plural(self.n_instances, 'instance')}"
        )
        if self.effect is None:
            return f"{where}: {self.verdict}; the next look waits for {self.waits_for}"
        value, low, high = (
            100 * end for end in (self.effect.value, self.effect.low, self.effect.high)
        )
        words = _STOPS[self.verdict]
        return f"{where}: {words} ({value:+.1f} [{low:+.1f}, {high:+.1f}] points, adjusted)"


_STOPS = {
    "not worse": "stop, not worse by the margin",
    "worse": "stop, worse",
    "futile": 'stop, futile: "not worse" would hardly be shown any more',
    "not shown": "the end, not shown to be as good",
}


def decisions(group: Group, plan: AnalysisPlan) -> list[Decision]:
    """Return the decision about every planned arm.

    Raises:
        ValueError: the plan has no looks, or its reference is not among the arms.
    """
    if not plan.looks:
        raise ValueError("the plan has no looks: analysis.looks=[0.5,1.0] before the sweep begins")
    if plan.reference not in group.arms:
        raise ValueError(f"no arm {plan.reference!r} in {group.title}")
    arms = plan.contrasts or tuple(a for a in group.arms if a != plan.reference)
    control = group.arms[plan.reference]
    return [_decision(group.arms[name], control, group.instance_ids, plan) for name in arms]


def _decision(
    arm: ArmOutcomes, control: ArmOutcomes, instance_ids: Sequence[str], plan: AnalysisPlan
) -> Decision:
    in_order = plan.look_order(instance_ids)
    place = {name: i for i, name in enumerate(instance_ids)}
    order = np.array([place[name] for name in in_order])
    complete = (arm.graded & control.graded)[order]
    n_complete = int(np.argmin(np.append(complete, False)))
    # Of few instances several looks may come after the same one: they are one look.
    sizes = list(dict.fromkeys(ceil(share * len(order) - TIE) for share in plan.looks))
    fractions = [size / len(order) for size in sizes]
    limits = boundaries(fractions, spending=plan.spending)
    gaps = (seed_means(arm.resolved) - seed_means(control.resolved))[order]
    waits_for = in_order[n_complete] if n_complete < len(order) else ""
    found = _none_due(arm.arm, sizes, n_complete, waits_for)
    lows: list[float] = []
    highs: list[float] = []
    for number, size in enumerate(sizes[: sum(n <= n_complete for n in sizes)]):
        value, error = float(gaps[:size].mean()), _standard_error(gaps[:size])
        not_worse, worse = _z(gaps[:size], -plan.margin), _z(gaps[:size], 0.0)
        verdict = _verdict(not_worse, worse, fractions[: number + 1], limits, plan.margin / error)
        effect = None
        if verdict != "go on":
            effect = _possible(
                adjusted(
                    fractions[: number + 1],
                    low=lows,
                    high=highs,
                    z=value / error,
                    standard_error=error,
                )
            )
        found = Decision(
            arm=arm.arm,
            look=number + 1,
            n_looks=len(sizes),
            n_instances=size,
            n_complete=n_complete,
            waits_for=waits_for,
            boundary=limits[number],
            z_not_worse=not_worse,
            z_worse=worse,
            verdict=verdict,
            effect=effect,
        )
        if found.stops:
            return found
        # Where this look would have stopped, on the scale of the difference against 0.
        lows.append(-limits[number])
        highs.append(limits[number] - plan.margin / error)
    return found


def _possible(effect: Adjusted) -> Adjusted:
    """Return the effect with its ends within what a difference of rates can be."""
    value, low, high = (min(1.0, max(-1.0, v)) for v in (effect.value, effect.low, effect.high))
    return Adjusted(value=value, low=low, high=high)


def _none_due(arm: str, sizes: Sequence[int], n_complete: int, waits_for: str) -> Decision:
    return Decision(
        arm=arm,
        look=0,
        n_looks=len(sizes),
        n_instances=sizes[0],
        n_complete=n_complete,
        waits_for=waits_for,
        boundary=nan,
        z_not_worse=nan,
        z_worse=nan,
        verdict="go on",
        effect=None,
    )


def _verdict(
    not_worse: float,
    worse: float,
    fractions: Sequence[float],
    limits: Sequence[float],
    margin_z: float,
) -> Verdict:
    """Return what a look decides from its z values; `fractions` end with it."""
    limit, fraction = limits[len(fractions) - 1], fractions[-1]
    if not_worse >= limit:
        return "not worse"
    if worse <= -limit:
        return "worse"
    if len(fractions) == len(limits):
        return "not shown"
    # Were the arms equal, z * sqrt(fraction) would go on with this drift.
    drift = margin_z / sqrt(fraction)
    missing = limits[-1] - not_worse * sqrt(fraction) - drift * (1 - fraction)
    power = float(ndtr(-missing / sqrt(1 - fraction)))
    return "futile" if power < MIN_CONDITIONAL_POWER else "go on"


def _z(gaps: FloatArray, null: float) -> float:
    """Return Tango's score of the differences against `null`.

    A pair won by a half adds a half to the pairs won. The variance that the score then assumes is
    sum(|d|), and the true one is sum(d^2): their ratio corrects it.
    """
    won, lost = float(gaps[gaps > TIE].sum()), float(-gaps[gaps < -TIE].sum())
    share = float((gaps**2).sum()) / (won + lost) if won + lost > TIE else 1.0
    return float(tango_score(np.array(won), np.array(lost), len(gaps), null)) / sqrt(share)


def _standard_error(gaps: FloatArray) -> float:
    """Return that of the mean difference; from Tango's interval where few differ, or all alike."""
    if int((np.abs(gaps) > TIE).sum()) >= MIN_DIFFERING and np.ptp(gaps) > TIE:
        return float(gaps.std(ddof=1) / sqrt(len(gaps)))
    won, lost = float(gaps[gaps > TIE].sum()), float(-gaps[gaps < -TIE].sum())
    low, high = tango_interval(won, lost, len(gaps))
    return (high - low) / (2 * Z)
