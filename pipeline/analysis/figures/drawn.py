"""Draws a study's figures into a folder and says under what caption each belongs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, seed_means
from pipeline.analysis.figures import style
from pipeline.analysis.figures.budgets import budget_points, solve_rate_against_tokens
from pipeline.analysis.figures.context import context_growth, peak_contexts
from pipeline.analysis.figures.distances import refetch_distances
from pipeline.analysis.figures.forest import Panel, forest
from pipeline.analysis.figures.money import (
    Effects,
    cost_against_price_ratio,
    cost_against_solve_rate,
)
from pipeline.analysis.figures.tokens import stacked_tokens
from pipeline.analysis.rate_difference import RateDifference
from pipeline.analysis.study import GroupStudy, Study
from pipeline.analysis.traces import typical_pair
from pipeline.analysis.wording import evidence_note
from pipeline.plural import plural


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One figure on disk."""

    name: str
    """What it shows, without the group: `context_growth`."""
    group: str
    svg: Path
    caption: str


def draw_all(study: Study, connection: duckdb.DuckDBPyConnection, folder: Path) -> list[Drawn]:
    """Draw every figure of every group as SVG and PDF into `folder`."""
    with style.styled():
        return [
            figure
            for number, group in enumerate(study.groups)
            for figure in _group_figures(study, group, connection, folder / f"group{number + 1}")
        ]


def _group_figures(
    study: Study, group: GroupStudy, connection: duckdb.DuckDBPyConnection, folder: Path
) -> Iterator[Drawn]:
    styles = style.arm_styles(list(group.group.arms), reference=group.reference)
    evidence = group.group.evidence
    note = evidence_note(evidence)

    def drawn(name: str, figure: Figure, caption: str) -> Drawn:
        svg = style.save(figure, folder / name, evidence=evidence)
        return Drawn(
            name=name, group=group.group.title, svg=svg, caption=f"{caption.rstrip('.')}{note}."
        )

    main = group.main_arm
    if main is not None:
        pair = typical_pair(connection, group.group, arm=main, reference=group.reference)
        if pair is not None:
            yield drawn(
                "context_growth",
                context_growth(pair.traces, styles),
                f"Context size per call for one task ({pair.instance_id}, seed {pair.seed}), the "
                f"one whose ratio of input tokens is nearest to the median. Numbers: outputs, and "
                f"their tokens, dropped before the call.",
            )
    peaks = complete_means(group, "peak_context_tokens")
    n = len(next(iter(peaks.values())))
    if n:
        yield drawn(
            "peak_context",
            peak_contexts(peaks, solved_where_complete(group), styles, reference=group.reference),
            f"Peak context of each of {plural(n, 'task')}, mean over seeds; filled: solved.",
        )
        yield drawn(
            "stacked_tokens",
            stacked_tokens(_token_parts(group), n_instances=n),
            f"Input tokens by kind of call over {plural(n, 'task')} complete in every arm, "
            "mean over seeds.",
        )
    if group.contrasts:
        yield drawn(
            "forest",
            forest(_panels(group, study.plan.margin), [c.arm for c in group.contrasts], styles),
            f"Every arm against {group.reference}, with 95% intervals (instances resampled; "
            "dotted: the margin).",
        )
    yield from _cost_figures(study, group, styles, drawn)
    budgets = budget_points(study.gate.treatments, group.group)
    if budgets is not None:
        yield drawn(
            "budget_solve_rate",
            solve_rate_against_tokens(budgets, styles),
            "Solve rate against tokens: filled where an arm came to lie, hollow where its budget "
            "asked it to. Arms are compared along the curve, not at one point.",
        )
    if group.behaviour:
        yield drawn(
            "refetch_distance",
            refetch_distances(
                {b.arm: b.distances for b in group.behaviour},
                {b.arm: b.n_runs for b in group.behaviour},
                styles,
            ),
            "Re-fetches a run by how many turns ago the same lines were read.",
        )


def _panels(group: GroupStudy, margin: float) -> list[Panel]:
    """Return the forest's panels: solve rate, input tokens, and cost once prefixes are cached."""
    solve = {c.arm: c.solve.difference for c in group.contrasts if c.solve is not None}
    cached = {c.arm: c.caching_cost for c in group.contrasts if c.caching_cost is not None}
    panels = [
        Panel(
            label="solve rate, points",
            effects={arm: _in_points(d) for arm, d in solve.items()},
            null=0.0,
            margin=-100 * margin,
        ),
        Panel(
            label="input tokens, ratio",
            effects={c.arm: _ends(c.tokens) for c in group.contrasts},
            null=1.0,
        ),
        Panel(
            label="cost, prefixes cached, ratio",
            effects={arm: _ends(cost.ratio) for arm, cost in cached.items()},
            null=1.0,
        ),
    ]
    return [panel for panel in panels if panel.effects]


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _in_points(found: RateDifference) -> tuple[float, float, float]:
    return 100 * found.value, 100 * found.low, 100 * found.high


def _cost_figures(
    study: Study,
    group: GroupStudy,
    styles: dict[str, style.ArmStyle],
    drawn: Callable[[str, Figure, str], Drawn],
) -> Iterator[Drawn]:
    panels = {
        name: effects
        for name in dict.fromkeys((study.plan.pricing, *_caching_lists(group)))
        if (effects := _effects(group, name))
    }
    if panels:
        pricing = study.pricing
        yield drawn(
            "cost_solve_rate",
            cost_against_solve_rate(panels, styles, reference=group.reference),
            f"Cost and solve rate against {group.reference}, with 95% intervals of the paired "
            f"comparison; price lists of {pricing.name} ({pricing.as_of}).",
        )
    sweeps = [s for s in group.price_sweeps if not any(np.isnan(e.value) for e in s.costs)]
    if sweeps:
        yield drawn(
            "cost_price_ratio",
            cost_against_price_ratio(sweeps, styles),
            f"Cost against {group.reference} as cached tokens get dearer, {sweeps[0].view} view of "
            f"the cache; bars on the line at 1: break-even. Dotted: what an engine that keeps the "
            f"keys of all surviving text could give.",
        )


def _caching_lists(group: GroupStudy) -> list[str]:
    """Return the first price list with a discount on what is cached, if there is one."""
    return [c.caching_cost.prices for c in group.contrasts if c.caching_cost is not None][:1]


def _effects(group: GroupStudy, prices: str) -> dict[str, Effects]:
    """Return the arms whose cost under a price list and whose solve rate are known."""
    return {
        c.arm: Effects(cost=_ends(cost.ratio), solve_points=_in_points(c.solve.difference))
        for c in group.contrasts
        for cost in c.costs
        if c.solve is not None and cost.prices == prices and not np.isnan(cost.ratio.value)
    }


def solved_where_complete(group: GroupStudy) -> dict[str, FloatArray]:
    """Return seed means of resolved by arm, on the instances of `complete_means`."""
    arms = {a: group.group.arms[a] for a in _in_order(group)}
    complete = np.logical_and.reduce([arm.complete for arm in arms.values()])
    peaks = [arm.mean_of("peak_context_tokens") for arm in arms.values()]
    complete &= ~np.isnan(peaks).any(axis=0)
    return {name: seed_means(arm.resolved)[complete] for name, arm in arms.items()}


def complete_means(group: GroupStudy, metric: str) -> dict[str, FloatArray]:
    """Return seed means of `metric` by arm, on the instances complete in every arm."""
    arms = _in_order(group)
    complete = np.logical_and.reduce([group.group.arms[a].complete for a in arms])
    means = {a: group.group.arms[a].mean_of(metric)[complete] for a in arms}
    known = np.logical_and.reduce([~np.isnan(m) for m in means.values()])
    return {a: m[known] for a, m in means.items()}


def _in_order(group: GroupStudy) -> list[str]:
    return [group.reference, *(c.arm for c in group.contrasts)]


def _token_parts(group: GroupStudy) -> dict[str, tuple[float, float, float]]:
    total = complete_means(group, "input_tokens")
    cleanup = complete_means(group, "cleanup_input_tokens")
    aux = complete_means(group, "aux_input_tokens")
    parts = {}
    for arm in total:
        whole, asked, other = (
            float(values[arm].sum()) if arm in values else 0.0 for values in (total, cleanup, aux)
        )
        parts[arm] = (whole - asked - other, asked, other)
    return parts
