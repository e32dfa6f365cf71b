"""One arm against the reference, on the instances that are complete in both.

Every figure of the paired table comes from here. Instances without a complete pair are named and
bounded, never dropped in silence. A contrast that the analysis plan does not name is exploratory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.analysis.arrays import BoolArray, FloatArray
from pipeline.analysis.bootstrap import (
    Estimate,
    geometric_mean_ratios,
    mean_differences,
    ratios_of_sums,
    resample_counts,
    seed_means,
)
from pipeline.analysis.equivalence import (
    SamenessClaim,
    is_cheaper_at_same_rate,
    sameness_of_solve_rates,
)
from pipeline.analysis.medians import median_ratio, ratio_of_medians
from pipeline.analysis.missing import WorstCase, worst_case_difference
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.paired_tests import PairedTest, holm, solve_rate_test
from pipeline.analysis.rate_difference import TIE, RateDifference, rate_difference
from pipeline.spec.analysis import AnalysisPlan

RATIO_METRICS = ("input_tokens", "output_tokens", "n_steps", "n_calls", "wall_s", "gpu_s")
"""Metrics compared as a ratio of sums."""

FLAT = "flat"
"""In place of a view of the cache: the price list does not look at it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SolveRate:
    """The solve rates of a contrast. The rates are over the paired, graded instances."""

    arm_rate: float
    reference_rate: float
    difference: RateDifference
    """Of the rates above, over all seeds."""
    test: PairedTest
    holm_p: float
    """NaN where the contrast is in no Holm family."""
    sameness: SamenessClaim
    worst_case: WorstCase
    won: tuple[str, ...]
    """Instances with a higher seed mean in the arm."""
    lost: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRatio:
    """An arm's cost over the reference's under one price list."""

    prices: str
    view: str
    """Of the cache; `flat` where the list gives no discount."""
    ratio: Estimate

    @property
    def is_caching(self) -> bool:
        """True where the list gives a discount on what is cached."""
        return self.view != FLAT


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """One arm against the reference."""

    arm: str
    reference: str
    is_planned: bool
    """False: exploratory."""
    n_instances: int
    n_paired: int
    unpaired: tuple[str, ...]
    """Instances that are not complete in both arms."""
    solve: SolveRate | None
    """None without grades."""
    ratios: Mapping[str, Estimate]
    """Metric to the ratio of sums over all paired instances."""
    geometric: Mapping[str, Estimate]
    """Metric to the geometric mean of per-instance ratios."""
    median_steps_ratio: Estimate
    """Ratio of median run lengths."""
    tokens_holm_p: float
    cleanup_share: float
    """Cleanup calls' share of the arm's input tokens."""
    aux_share: float
    peak_ratio: Estimate
    """Ratio of median peak contexts."""
    paired_peak_ratio: Estimate
    """Median of per-instance ratios of peak context."""
    n_peak_lower: int
    """Instances whose peak is lower in the arm."""
    costs: tuple[CostRatio, ...] = ()
    """By price list, in the first view of the cache that is known; empty without calls."""
    full_price: CostRatio | None = None
    """Ratio of the input tokens that were not cached; None without calls."""

    @property
    def tokens(self) -> Estimate:
        """Ratio of total input tokens."""
        return self.ratios["input_tokens"]

    @property
    def caching_cost(self) -> CostRatio | None:
        """The cost under the first list that gives a discount on what is cached."""
        return next((cost for cost in self.costs if cost.is_caching), None)

    @property
    def cheaper_under(self) -> tuple[str, ...]:
        """Price lists under which the arm is cheaper at a solve rate that is not worse."""
        if self.solve is None:
            return ()
        same = self.solve.sameness
        return tuple(c.prices for c in self.costs if is_cheaper_at_same_rate(same, c.ratio))


def contrasts_of(
    group: Group, plan: AnalysisPlan, *, reference: str, draws: "Draws | None" = None
) -> list[Contrast]:
    """Return every other arm of `group` against `reference`, Holm-corrected where planned.

    Raises:
        ValueError: the reference is not among the arms; those there are listed.
    """
    if reference not in group.arms:
        raise ValueError(
            f"no arm {reference!r} in {group.title}; choose another with --reference: "
            + ", ".join(group.arms)
        )
    others = [arm for arm in group.arms if arm != reference]
    planned = set(plan.contrasts or others) if reference == plan.reference else set()
    draws = draws or Draws(plan)
    found = [
        _contrast(group, arm, reference, plan=plan, is_planned=arm in planned, draws=draws)
        for arm in others
    ]
    return _holm_corrected(found, plan)


class Draws:
    """Resamples of n instances, drawn once: all contrasts of n instances share them."""

    def __init__(self, plan: AnalysisPlan) -> None:
        self._plan = plan
        self._drawn: dict[int, FloatArray] = {}

    def of(self, n_instances: int) -> FloatArray:
        """Return counts of shape (resamples, `n_instances`)."""
        if n_instances == 0:
            return np.empty((1, 0))
        if n_instances not in self._drawn:
            rng = np.random.default_rng([self._plan.resampling_seed, n_instances])
            self._drawn[n_instances] = resample_counts(
                n_instances, draws=self._plan.resamples, rng=rng
            )
        return self._drawn[n_instances]


def _contrast(
    group: Group, arm: str, reference: str, *, plan: AnalysisPlan, is_planned: bool, draws: Draws
) -> Contrast:
    treatment, control = group.arms[arm], group.arms[reference]
    paired = treatment.complete & control.complete
    counts = draws.of(int(paired.sum()))

    def means(outcomes: ArmOutcomes, metric: str) -> FloatArray:
        return outcomes.mean_of(metric)[paired]

    ratios = {
        m: ratios_of_sums(means(control, m), means(treatment, m)[:, None], counts)[0]
        for m in RATIO_METRICS
    }
    geometric = {
        m: geometric_mean_ratios(means(control, m), means(treatment, m)[:, None], counts)[0]
        for m in ("input_tokens", "n_steps")
    }
    lengths = means(control, "n_steps"), means(treatment, "n_steps")
    solve = _solve_rate(group, treatment, control, plan=plan, draws=draws)
    peaks = means(control, "peak_context_tokens"), means(treatment, "peak_context_tokens")
    total = float(means(treatment, "input_tokens").sum())
    return Contrast(
        arm=arm,
        reference=reference,
        is_planned=is_planned,
        n_instances=len(group.instance_ids),
        n_paired=int(paired.sum()),
        unpaired=_named(group, ~paired),
        solve=solve,
        ratios=ratios,
        geometric=geometric,
        median_steps_ratio=_of_medians(ratio_of_medians, lengths, counts),
        tokens_holm_p=float("nan"),
        cleanup_share=_share(means(treatment, "cleanup_input_tokens"), total),
        aux_share=_share(means(treatment, "aux_input_tokens"), total),
        peak_ratio=_of_medians(ratio_of_medians, peaks, counts),
        paired_peak_ratio=_of_medians(median_ratio, peaks, counts),
        n_peak_lower=int((peaks[1] < peaks[0]).sum()),
    )


def _solve_rate(
    group: Group,
    treatment: ArmOutcomes,
    control: ArmOutcomes,
    *,
    plan: AnalysisPlan,
    draws: Draws,
) -> SolveRate | None:
    paired = treatment.graded & control.graded
    if not paired.any():
        return None
    before, after = control.resolved[paired], treatment.resolved[paired]
    old, new = seed_means(before), seed_means(after)
    counts = draws.of(int(paired.sum()))
    return SolveRate(
        arm_rate=float(new.mean()),
        reference_rate=float(old.mean()),
        difference=rate_difference(old, new, counts),
        test=solve_rate_test(
            before, after, bootstrap_p=mean_differences(old, new[:, None], counts)[0].p_value
        ),
        holm_p=float("nan"),
        sameness=sameness_of_solve_rates(
            before,
            after,
            margin=plan.margin,
            counts=counts,
            fall_back=_columns_of_one_seed(control, treatment, plan.prespecified_seed),
        ),
        worst_case=worst_case_difference(control.resolved, treatment.resolved),
        won=_named(group, _spread(paired, new > old + TIE)),
        lost=_named(group, _spread(paired, new < old - TIE)),
    )


def _columns_of_one_seed(
    control: ArmOutcomes, treatment: ArmOutcomes, seed: int
) -> tuple[int, int]:
    """Return where both arms hold `seed`, else their smallest common seed, else their first."""
    shared = set(control.seeds) & set(treatment.seeds)
    if not shared:
        return 0, 0
    chosen = seed if seed in shared else min(shared)
    return control.seeds.index(chosen), treatment.seeds.index(chosen)


def _spread(paired: BoolArray, flags: BoolArray) -> BoolArray:
    """Return flags of the paired instances as flags of all."""
    spread = np.zeros(len(paired), dtype=bool)
    spread[paired] = flags
    return spread


def _named(group: Group, flags: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, flag in zip(group.instance_ids, flags, strict=True) if flag)


def _share(part: FloatArray, total: float) -> float:
    return float(part.sum()) / total if total > 0 else float("nan")


def _of_medians(
    of: Callable[[FloatArray, FloatArray, FloatArray], Estimate],
    sides: tuple[FloatArray, FloatArray],
    counts: FloatArray,
) -> Estimate:
    control, treatment = sides
    if len(control) == 0 or np.isnan(control).any() or np.isnan(treatment).any():
        return ratios_of_sums(np.empty(0), np.empty((0, 1)), np.empty((1, 0)))[0]
    return of(control, treatment, counts)


def _holm_corrected(found: Sequence[Contrast], plan: AnalysisPlan) -> list[Contrast]:
    """Return the contrasts with Holm's p values; a family is one outcome's planned contrasts."""
    planned = [i for i, c in enumerate(found) if c.is_planned]
    corrected = list(found)
    if "solve_rate" in plan.holm_outcomes:
        graded = [(i, solve) for i in planned if (solve := found[i].solve) is not None]
        adjusted = holm([solve.test.p_value for _, solve in graded])
        for (i, solve), p in zip(graded, adjusted, strict=True):
            corrected[i] = replace(corrected[i], solve=replace(solve, holm_p=p))
    if "input_tokens" in plan.holm_outcomes:
        adjusted = holm([found[i].tokens.p_value for i in planned])
        for i, p in zip(planned, adjusted, strict=True):
            corrected[i] = replace(corrected[i], tokens_holm_p=p)
    return corrected
