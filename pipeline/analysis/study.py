"""Everything that is computed from one results folder, before anything is written.

A `Study` is data: groups, contrasts, noise, and what the gate found. `publish` turns it into
tables, figures and the report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.behaviour.collect import Behaviour, collect
from pipeline.analysis.behaviour.summary import (
    ArmBehaviour,
    behaviour_by_arm,
    leaking_instances,
    refetches_by_arm,
)
from pipeline.analysis.contrasts import Contrast, Draws, contrasts_of
from pipeline.analysis.cost import (
    FULL_PRICE,
    VIEWS,
    ArmBill,
    PriceSweep,
    Usage,
    bills,
    cost_ratios,
    instance_costs,
    price_sweep,
    usage_of,
)
from pipeline.analysis.decisions import Decision, decisions
from pipeline.analysis.forks import ForkTally, fork_tallies, fresh_only
from pipeline.analysis.gate import Gate, InvalidSweepError, checked
from pipeline.analysis.gate_ended import ended_early
from pipeline.analysis.gate_runs import with_runs
from pipeline.analysis.grid import Cell, MatchedContrast, grid_cells, matched_contrasts
from pipeline.analysis.grid_results import GridRow, cheaper_sentences, grid_results
from pipeline.analysis.missing import refused_contrasts
from pipeline.analysis.outcomes import ArmOutcomes, Group, groups_of, without_instances
from pipeline.analysis.power import PowerRow, power_table
from pipeline.analysis.price_regret import ArmPriceRegret, price_regrets
from pipeline.analysis.prior_regression import AdjustedDifference, adjusted_differences
from pipeline.analysis.published import not_as_published
from pipeline.analysis.replication import SeedNoise, pass_at_k, pass_hat_k, seed_noise
from pipeline.analysis.repositories import RepositorySensitivity, repository_sensitivity
from pipeline.analysis.scores import ScoreContrast, score_contrasts
from pipeline.analysis.splice_use import ArmSpliceUse, splice_uses
from pipeline.analysis.strata import LengthBand, Saving, by_baseline_length, savings
from pipeline.analysis.tables import open_tables
from pipeline.records.columns import MESSAGES
from pipeline.records.ended_arms import ended_arms
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, read_lock
from pipeline.spec.analysis import AnalysisPlan
from pipeline.spec.pricing import Pricing, pricing_from


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStudy:
    """One group with everything found in it."""

    group: Group
    reference: str
    contrasts: tuple[Contrast, ...]
    noise: Mapping[str, SeedNoise]
    """Arm against itself between seeds, on runs that did not begin with another arm's."""
    by_prior: Sequence[AdjustedDifference]
    """Solve rates adjusted for a difficulty prior, where the plan says so."""
    forks: Sequence[ForkTally]
    """What runs shared with others, by arm; empty where all ran fresh."""
    passes: Mapping[str, Sequence[tuple[int, float, float]]]
    """Arm to (k, pass@k, pass^k)."""
    savings: Mapping[str, Sequence[Saving]]
    """Arm to its saving on every stratum of pairs."""
    bands: Mapping[str, Sequence[LengthBand]]
    """Arm to its saving by baseline length."""
    repositories: Mapping[str, Sequence[RepositorySensitivity]]
    decisions: Sequence[Decision]
    """Of each planned arm at the plan's looks; empty without looks."""
    bills: Sequence[ArmBill]
    """Every arm under every price list and cache view; empty without calls."""
    price_sweeps: Sequence[PriceSweep]
    price_regrets: Sequence[ArmPriceRegret]
    """Of arms whose messages and calls are there."""
    scores: Sequence[ScoreContrast]
    """The primary outcome where instances can be solved in part; empty elsewhere."""
    splice_uses: Sequence[ArmSpliceUse]
    """Of arms that spliced, where the server told."""
    behaviour: Sequence[ArmBehaviour]
    """The reference first; empty without messages."""
    leaking: tuple[str, ...]
    """Instances of which some run looked at other commits or used the network."""
    matched: Sequence[MatchedContrast]
    """Matched contrasts within a grid of deletion arms; empty without one."""
    grid: Sequence[GridRow]
    """The results of a grid of deletion arms; empty without one."""
    cheaper: Sequence[str]
    """How many of the grid's configurations cost less, by price list."""
    without_leaks: Sequence[Contrast]
    """The contrasts again, without those instances; empty where there are none or no others."""

    @property
    def main_arm(self) -> str | None:
        """The arm shown in figures of one pair; None with a single arm."""
        arms = [c.arm for c in self.contrasts]
        planned = [c.arm for c in self.contrasts if c.is_planned] or arms
        return "plan_prune" if "plan_prune" in planned else (planned[0] if planned else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What one results folder says."""

    results: Path
    plan: AnalysisPlan
    lock: Lock | None
    gate: Gate
    groups: tuple[GroupStudy, ...]
    power: tuple[PowerRow, ...]
    pricing: Pricing
    behaviour: Behaviour

    @property
    def evidence(self) -> str:
        """The evidence label of everything in it."""
        labels = {e for g in self.groups for e in g.group.evidence.split("+")}
        return "+".join(sorted(labels)) or "unknown"

    @property
    def is_marked(self) -> bool:
        """True where the gate failed and results were asked for all the same."""
        return not self.gate.passes

    @property
    def cache_note(self) -> str:
        """What a caption says where arms could hit each other's prefix cache; else nothing."""
        shares = self.lock is not None and self.lock.spec.share_cache
        return "; arms share the prefix cache" if shares else ""


def study_of(
    results: Path,
    connection: duckdb.DuckDBPyConnection,
    *,
    reference: str | None = None,
    allow_invalid: bool = False,
) -> Study:
    """Return what the open tables of `results` say.

    Args:
        results: the results folder, for its lock.
        connection: from `open_tables`.
        reference: arm to compare with instead of the plan's; all is exploratory then.
        allow_invalid: analyse a sweep that fails the gate; everything is marked.

    Raises:
        InvalidSweepError: the gate refused the sweep, or there is nothing to analyse.
        ValueError: the reference is not among the arms.
    """
    layout = Layout(results)
    lock = read_lock(layout.lock) if layout.lock.exists() else None
    plan = lock.spec.analysis if lock else AnalysisPlan()
    acting, ended = _acting_arms(lock), ended_arms(layout)
    gate = checked(
        connection,
        has_lock=lock is not None,
        acting_arms=acting,
        baseline_arms=[name for name in lock.spec.arms if name not in acting] if lock else (),
        image_digests=lock.image_digests if lock else None,
        window_may_bind=plan.window_may_bind,
    )
    nothing = any(p.code == "no_runs" for p in gate.problems)
    groups = [] if nothing else groups_of(connection, exclusions=plan.exclusions)
    lost = refused_contrasts(
        groups,
        reference=reference or plan.reference,
        max_share=plan.max_missing_share,
        was_launched=lock is not None,
        ended_arms=ended,
    )
    early = ended_early(groups, plan, ended)
    found = (*gate.problems, *early, *lost, *not_as_published(lock))
    gate = replace(gate, problems=tuple(with_runs(connection, found)))
    if nothing or not (gate.passes or allow_invalid):
        raise InvalidSweepError(gate)
    pricing = pricing_from(lock.spec.pricing if lock else {})
    behaviour = collect(
        connection,
        sorted(layout.table(MESSAGES.name).glob("*.parquet")),
        refetch_source=plan.refetch_source,
    )
    return Study(
        results=results,
        plan=plan,
        lock=lock,
        gate=gate,
        groups=tuple(
            _group_study(
                group,
                plan,
                reference=reference or plan.reference,
                connection=connection,
                behaviour=behaviour,
                pricing=pricing,
                cells=grid_cells(lock.spec.arms) if lock else {},
                prior=lock.spec.difficulty if lock and plan.adjust_for_prior else {},
            )
            for group in groups
        ),
        pricing=pricing,
        behaviour=behaviour,
        power=tuple(_power(groups, plan)),
    )


def _acting_arms(lock: Lock | None) -> list[str]:
    """Return the arms whose policy is meant to take something out of the view."""
    arms = lock.spec.arms.items() if lock else ()
    return [name for name, arm in arms if arm.policy.prunes]


def opened_study(
    results: Path, *, reference: str | None = None, allow_invalid: bool = False
) -> tuple[duckdb.DuckDBPyConnection, Study]:
    """Return the open tables of `results` and what they say; see `study_of`."""
    connection = open_tables(results)
    study = study_of(results, connection, reference=reference, allow_invalid=allow_invalid)
    return connection, study


def _group_study(
    group: Group,
    plan: AnalysisPlan,
    *,
    reference: str,
    connection: duckdb.DuckDBPyConnection,
    behaviour: Behaviour,
    pricing: Pricing,
    cells: Mapping[str, Cell],
    prior: Mapping[str, float],
) -> GroupStudy:
    if len(group.arms) == 1:
        # One arm has nothing to be compared with; it is described.
        reference = next(iter(group.arms))
    draws = Draws(plan)
    contrasts = contrasts_of(group, plan, reference=reference, draws=draws)
    others = {c.arm: group.arms[c.arm] for c in contrasts}
    control = group.arms[reference]
    priced = _priced(connection, group, pricing, reference=reference, draws=draws)
    contrasts = [
        replace(
            c,
            costs=cost_ratios(priced.bills, c.arm),
            full_price=next(iter(cost_ratios(priced.full_price, c.arm)), None),
        )
        for c in contrasts
    ]
    leaking = leaking_instances(behaviour, group)
    some_left = 0 < len(leaking) < len(group.instance_ids)
    clean = without_instances(group, set(leaking))
    return GroupStudy(
        group=group,
        reference=reference,
        contrasts=tuple(contrasts),
        noise={name: _noise(arm) for name, arm in group.arms.items()},
        by_prior=adjusted_differences(group, prior, reference=reference),
        forks=fork_tallies(connection, group),
        passes={name: _passes(arm) for name, arm in group.arms.items()},
        savings={name: savings(control, arm, draws) for name, arm in others.items()},
        bands={name: by_baseline_length(control, arm, draws) for name, arm in others.items()},
        repositories={
            name: repository_sensitivity(group, arm=name, reference=reference, draws=draws)
            for name in others
        },
        decisions=decisions(group, plan)
        if plan.looks and plan.reference in group.arms and len(group.arms) > 1
        else (),
        bills=priced.bills,
        price_sweeps=priced.sweeps,
        price_regrets=price_regrets(connection, group, pricing.caching)
        if behaviour.run_ids
        else (),
        scores=score_contrasts(connection, group, reference=reference, plan=plan, draws=draws),
        splice_uses=splice_uses(connection, group) if priced.bills else (),
        behaviour=behaviour_by_arm(connection, behaviour, group, reference=reference, draws=draws)
        if behaviour.run_ids
        else (),
        leaking=leaking,
        matched=matched_contrasts(
            group,
            cells,
            draws,
            {
                **{m: {n: a.mean_of(m) for n, a in group.arms.items()} for m in _MATCHED_METRICS},
                "refetches": refetches_by_arm(behaviour, group),
                **{f"cost_{name}": costs for name, costs in priced.by_instance.items()},
            },
        ),
        grid=grid_results(contrasts, cells),
        cheaper=cheaper_sentences(contrasts, cells),
        without_leaks=contrasts_of(clean, plan, reference=reference, draws=draws)
        if some_left
        else (),
    )


_MATCHED_METRICS = ("input_tokens", "n_steps")
"""Metrics that are compared between the matched arms of a grid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Priced:
    """What the calls of a group cost; empty where token counts are unknown."""

    bills: Sequence[ArmBill] = ()
    sweeps: Sequence[PriceSweep] = ()
    full_price: Sequence[ArmBill] = ()
    """In tokens that were not cached, in the first view that is known."""
    by_instance: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)
    """Price list to each arm's cost by instance, in the list's first view that is known."""


def _priced(
    connection: duckdb.DuckDBPyConnection,
    group: Group,
    pricing: Pricing,
    *,
    reference: str,
    draws: Draws,
) -> _Priced:
    """Return every bill, and the price sweep on the prefix (else as reported) and spliced."""
    plain = usage_of(connection, group)
    if np.isnan(plain[reference]["flat_prompt"]).all():
        return _Priced()
    known = _known_views(plain[reference])
    found: list[ArmBill] = []
    by_instance: dict[str, dict[str, FloatArray]] = {}
    for prices in pricing.lists.values():
        usages = usage_of(connection, group, prices)
        views = ["flat"] if prices.is_flat else _known_views(usages[reference])
        for view in views:
            found += bills(usages, group, prices, view=view, reference=reference, draws=draws)
        by_instance[prices.name] = {
            name: instance_costs(usages[name], arm, prices, view)
            for view in views[:1]
            for name, arm in group.arms.items()
        }
    first = [view for view in ("exact", "reported") if view in known][:1]
    return _Priced(
        bills=found,
        sweeps=[
            sweep
            for view in [*first, *(v for v in known if v == "spliced")]
            for sweep in price_sweep(
                plain, group, pricing, view=view, reference=reference, draws=draws
            )
        ],
        full_price=[
            bill
            for view in known[:1]
            for bill in bills(plain, group, FULL_PRICE, view=view, reference=reference, draws=draws)
        ],
        by_instance={name: costs for name, costs in by_instance.items() if costs},
    )


def _known_views(usage: Usage) -> list[str]:
    return [view for view in VIEWS if np.nansum(usage[f"{view}_calls"]) > 0]


def _noise(arm: ArmOutcomes) -> SeedNoise:
    measured = (arm.resolved, arm.metrics["input_tokens"], arm.metrics["n_steps"])
    return seed_noise(*(fresh_only(arm, values) for values in measured))


def _passes(arm: ArmOutcomes) -> list[tuple[int, float, float]]:
    """Return pass@k and pass^k, each the mean over instances with all seeds graded."""
    graded = arm.graded
    if not graded.any():
        return []
    runs = (~np.isnan(arm.resolved[graded])).sum(axis=1)
    solved = np.nansum(arm.resolved[graded], axis=1).astype(int)
    pairs = list(zip(runs.tolist(), solved.tolist(), strict=True))
    return [
        (
            k,
            float(np.mean([pass_at_k(n, s, k) for n, s in pairs])),
            float(np.mean([pass_hat_k(n, s, k) for n, s in pairs])),
        )
        for k in range(1, int(runs.min()) + 1)
    ]


def _power(groups: Sequence[Group], plan: AnalysisPlan) -> list[PowerRow]:
    sizes = sorted({len(g.instance_ids) for g in groups} | {25, 100, 500})
    return power_table(sizes, discordances=(0.05, 0.10, 0.20), margin=plan.margin)
