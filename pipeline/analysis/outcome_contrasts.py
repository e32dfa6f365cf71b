"""Arms of a table of outcomes against one of them, and the sentences that they allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.analysis.bootstrap import (
    Estimate,
    mean_differences,
    ratios_of_sums,
    seed_means,
    unknown,
)
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.equivalence import SamenessClaim, sameness_of_solve_rates
from pipeline.analysis.outcome_file import OutcomeArm, OutcomeTable
from pipeline.analysis.paired_table import aligned, wrapped
from pipeline.analysis.paired_tests import holm, solve_rate_test
from pipeline.analysis.power import detectable_difference
from pipeline.analysis.rate_difference import TIE, RateDifference, rate_difference
from pipeline.analysis.wording import UNKNOWN, p_value, percent, points, ratio
from pipeline.spec.analysis import AnalysisPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeContrast:
    """One arm against the reference, on the tasks that are complete in both."""

    arm: str
    n_paired: int
    n_lost: int
    """Tasks that one of the two lacks."""
    rate: float
    reference_rate: float
    difference: RateDifference | Estimate
    """Of solve rates, or of mean scores."""
    discordance: float
    """Share of the tasks that differ."""
    p_value: float
    holm_p: float
    sameness: SamenessClaim | None
    """None for scores."""
    tokens: Estimate
    cost: Estimate


def outcome_contrasts(
    table: OutcomeTable, *, reference: str, plan: AnalysisPlan
) -> list[OutcomeContrast]:
    """Return every other arm against the reference, with Holm's correction over all of them.

    Raises:
        ValueError: the reference is not among the arms, or shares no task with one of them.
    """
    if reference not in table.arms:
        raise ValueError(
            f"no arm {reference!r}; choose another with --reference: {', '.join(table.arms)}"
        )
    draws = Draws(plan)
    found = [
        _contrast(table, arm, reference, plan=plan, draws=draws)
        for arm in table.arms
        if arm != reference
    ]
    corrected = holm([c.p_value for c in found])
    return [replace(c, holm_p=p) for c, p in zip(found, corrected, strict=True)]


def _contrast(
    table: OutcomeTable, arm: str, reference: str, *, plan: AnalysisPlan, draws: Draws
) -> OutcomeContrast:
    treatment, control = table.arms[arm], table.arms[reference]
    paired = treatment.known("outcome") & control.known("outcome")
    if not paired.any():
        raise ValueError(f"{arm} and {reference} share no task with a known outcome")
    before, after = control.values["outcome"][paired], treatment.values["outcome"][paired]
    old, new = seed_means(before), seed_means(after)
    counts = draws.of(len(old))
    by_bootstrap = mean_differences(old, new[:, None], counts)[0]
    difference: RateDifference | Estimate = by_bootstrap
    p, sameness = by_bootstrap.p_value, None
    if not table.is_score:
        difference = rate_difference(old, new, counts)
        p = solve_rate_test(before, after, bootstrap_p=by_bootstrap.p_value).p_value
        sameness = sameness_of_solve_rates(before, after, margin=plan.margin, counts=counts)
    return OutcomeContrast(
        arm=arm,
        n_paired=len(old),
        n_lost=int((treatment.planned.any(axis=1) | control.planned.any(axis=1)).sum()) - len(old),
        rate=float(new.mean()),
        reference_rate=float(old.mean()),
        difference=difference,
        discordance=float((np.abs(new - old) > TIE).mean()),
        p_value=p,
        holm_p=float("nan"),
        sameness=sameness,
        tokens=_ratio(control, treatment, "tokens", draws),
        cost=_ratio(control, treatment, "cost", draws),
    )


def _ratio(control: OutcomeArm, treatment: OutcomeArm, name: str, draws: Draws) -> Estimate:
    paired = treatment.known(name) & control.known(name)
    if not paired.any():
        return unknown(0, null=1.0)
    old, new = (seed_means(side.values[name][paired]) for side in (control, treatment))
    return ratios_of_sums(old, new[:, None], draws.of(len(old)))[0]


def outcome_lines(
    table: OutcomeTable, reference: str, found: Sequence[OutcomeContrast]
) -> Iterator[str]:
    """Yield the paired table of one model, and what may be said."""
    rates = "score" if table.is_score else "solved"
    seeds = sorted({arm.planned.shape[1] for arm in table.arms.values()})
    runs = " or ".join(map(str, seeds)) + f" run{'' if seeds == [1] else 's'} a task and arm"
    yield f"{table.model}: {len(table.tasks)} tasks x {len(table.arms)} arms, {runs}"
    header = ("arm", rates, "difference, points", "p", "p (Holm)", "tokens ratio", "cost ratio")
    whole = table.arms[reference]
    means = seed_means(whole.values["outcome"][whole.known("outcome")])
    rate = percent(float(means.mean())) if len(means) else UNKNOWN
    rows = [(reference, rate, "reference", "", "", "1", "1")]
    rows += [
        (
            c.arm,
            percent(c.rate),
            points(c.difference),
            p_value(c.p_value),
            p_value(c.holm_p),
            ratio(c.tokens),
            ratio(c.cost),
        )
        for c in found
    ]
    yield from aligned([header, *rows])
    for sentence in _sentences(table, reference, found):
        yield from wrapped(sentence)


def _sentences(
    table: OutcomeTable, reference: str, found: Sequence[OutcomeContrast]
) -> Iterator[str]:
    if not found:
        yield f"{reference} is the only arm: there is nothing to compare it with."
        return
    what = "score" if table.is_score else "solve rate"
    shown = [c for c in found if c.holm_p <= 0.05]
    low = 100 * min(c.difference.low for c in found)
    high = 100 * max(c.difference.high for c in found)
    ends = f"95% intervals reach from {low:+.1f} to {high:+.1f} points"
    if not shown:
        yield (
            f"No arm is shown to differ from {reference} in {what}: the smallest p value, corrected"
            f" for {len(found)} arms, is {p_value(min(c.holm_p for c in found))}, and {ends}. That"
            " is no sign that the arms are as good."
        )
    for c in shown:
        word = "higher" if c.difference.value > 0 else "lower"
        yield (
            f"{c.arm} has a {word} {what} than {reference} by {points(c.difference)} points (p ="
            f" {p_value(c.holm_p)}, corrected for {len(found)} arms)."
        )
    yield from _power_sentence(table, found)
    open_claims = [c.arm for c in found if c.sameness and c.sameness.is_inconclusive]
    if open_claims and found[0].sameness:
        yield (
            f"{', '.join(open_claims)}: not shown to be as good; the interval reaches past a margin"
            f" of {100 * found[0].sameness.margin:g} points."
        )
    for c in found:
        if c.sameness and c.sameness.is_noninferior:
            cheaper = "cheaper" if c.cost.high < 1 else "not shown to be cheaper"
            yield f"{c.arm}: {c.sameness.sentence}; {cheaper} (cost ratio {ratio(c.cost)})."
    lost = max(c.n_lost for c in found)
    if lost:
        yield f"Up to {lost} tasks are not complete in both arms of a comparison and are left out."


def _power_sentence(table: OutcomeTable, found: Sequence[OutcomeContrast]) -> Iterator[str]:
    """Yield what so many tasks could have shown; exact for one run a task and arm."""
    one_run = all(arm.planned.shape[1] == 1 for arm in table.arms.values())
    if table.is_score or not one_run:
        return
    n = min(c.n_paired for c in found)
    discordance = float(np.median([c.discordance for c in found]))
    smallest = detectable_difference(n, discordance) if discordance else float("nan")
    tasks = f"With {n} tasks of which {percent(discordance)} differ between two arms"
    if np.isnan(smallest):
        yield f"{tasks}, no difference has an 80% chance to be found."
    else:
        yield (
            f"{tasks}, a true difference must be {100 * smallest:.1f} points to be found in 80% of"
            " such tables, before any correction for the number of arms."
        )
