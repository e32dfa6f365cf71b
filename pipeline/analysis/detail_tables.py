"""The result tables behind the answer as rows: savings, costs, behaviour, grids, windows."""

from collections.abc import Mapping
from dataclasses import asdict

from pipeline.analysis.behaviour.summary import ArmBehaviour
from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.grid import SOLVE
from pipeline.analysis.study import Study
from pipeline.analysis.table_columns import Row, estimate_columns, identity, rate_columns


def saving_rows(study: Study) -> list[Row]:
    """Return the savings by stratum and by baseline length."""
    rows: list[Row] = []
    for g in study.groups:
        for arm, found in g.savings.items():
            rows += (
                {
                    **identity(g.group),
                    "arm": arm,
                    "by": "outcome",
                    "stratum": s.stratum,
                    "n_pairs": s.n_pairs,
                    "n_instances": s.n_instances,
                    **estimate_columns("input_tokens_ratio", s.tokens),
                    "calls_ratio": s.calls_ratio,
                    "mean_prompt_ratio": s.mean_prompt_ratio,
                }
                for s in found
            )
        for arm, bands in g.bands.items():
            rows += (
                {
                    **identity(g.group),
                    "arm": arm,
                    "by": "baseline length",
                    "stratum": band.band,
                    "n_instances": band.n_instances,
                    **estimate_columns("input_tokens_ratio", band.tokens),
                }
                for band in bands
            )
    return rows


def repository_rows(study: Study) -> list[Row]:
    """Return the sensitivity to single repositories."""
    return [
        {
            **identity(g.group),
            "arm": arm,
            "outcome": r.outcome,
            "n_repositories": r.n_repositories,
            "largest_share": r.largest_share,
            "lowest_without_one": r.lowest,
            "lowest_without": r.lowest_without,
            "highest_without_one": r.highest,
            "highest_without": r.highest_without,
            **estimate_columns("clustered", r.clustered),
        }
        for g in study.groups
        for arm, found in g.repositories.items()
        for r in found
    ]


def cost_rows(study: Study) -> list[Row]:
    """Return every bill: arm, price list and cache view, with its parts."""
    rows = []
    for g in study.groups:
        for b in g.bills:
            row = {**identity(g.group), "arm": b.arm, "prices": b.prices, "view": b.view}
            row |= {name: getattr(b, name) for name in _BILL_PARTS}
            row |= {"priced_as_of": study.pricing.as_of, "currency": study.pricing.currency}
            if b.ratio is not None:
                row |= estimate_columns("ratio", b.ratio)
            rows.append(row)
    return rows


_BILL_PARTS = (
    *("total", "cached", "new", "rebilled", "output", "auxiliary"),
    *("cleanup_gross", "cleanup_marginal", "per_run", "per_solved", "known_calls", "n_calls"),
)


def price_sweep_rows(study: Study) -> list[Row]:
    """Return cost ratios by price ratio, with each arm's break-even."""
    return [
        {
            **identity(g.group),
            "arm": sweep.arm,
            "view": sweep.view,
            "price_ratio": price_ratio,
            **estimate_columns("cost_ratio", cost),
            "break_even": sweep.break_even,
            "pays": sweep.pays,
        }
        for g in study.groups
        for sweep in g.price_sweeps
        for price_ratio, cost in zip(sweep.ratios, sweep.costs, strict=True)
    ]


def price_regret_rows(study: Study) -> list[Row]:
    """Return how far each arm was from the cheapest schedule of removals."""
    return [{**identity(g.group), **asdict(r)} for g in study.groups for r in g.price_regrets]


def splice_rows(study: Study) -> list[Row]:
    """Return what became of the prompts of arms that spliced."""
    return [{**identity(g.group), **asdict(use)} for g in study.groups for use in g.splice_uses]


def score_rows(study: Study) -> list[Row]:
    """Return arms' mean scores against the reference's, where instances can be solved in part."""
    return [
        {
            **identity(g.group),
            "arm": c.arm,
            "reference": g.reference,
            "n_paired": c.n_paired,
            "score": c.score,
            "reference_score": c.reference_score,
            **estimate_columns("difference", c.difference),
            "sign_flip_p": c.p_value,
            "holm_p": c.holm_p,
            "margin": c.margin,
            "is_not_worse": c.is_not_worse,
            "power_not_worse": c.power_not_worse,
        }
        for g in study.groups
        for c in g.scores
    ]


def behaviour_rows(study: Study) -> list[Row]:
    """Return what each arm's runs did."""
    return [{**identity(g.group), **_behaviour_row(b)} for g in study.groups for b in g.behaviour]


def _behaviour_row(behaviour: ArmBehaviour) -> Row:
    row: Row = {name: getattr(behaviour, name) for name in _BEHAVIOUR_COLUMNS}
    row |= {f"{kind}_commands": n for kind, n in behaviour.commands.items()}
    if behaviour.refetch_ratio is not None:
        row |= estimate_columns("refetch_ratio", behaviour.refetch_ratio)
    if (added := behaviour.added_steps) is not None:
        row |= estimate_columns("added_steps", added.total)
        row |= estimate_columns("added_refetch_steps", added.refetching)
        row |= estimate_columns("added_other_steps", added.other)
    hazard = behaviour.hazard
    row |= estimate_columns("regret_ratio", behaviour.regret)
    return row | {
        "regret_pruned_rate": hazard.pruned_rate,
        "regret_kept_rate_same_age": hazard.matched_kept_rate,
        "regret_pruned_events": float(hazard.pruned_events.sum()),
        "regret_kept_events": float(hazard.kept_events.sum()),
    }


_BEHAVIOUR_COLUMNS = (
    *("arm", "n_runs", "steps_mean", "steps_median", "reads", "refetches", "refetch_rate"),
    *("source_pruned", "source_partly", "source_visible", "verifying", "distance_median"),
    "recalls",
    *("plan_steps", "plan_steps_completed", "cleanups", "never_treated", "pruned_tokens"),
    *("pruned_outputs", "capped", "context_limited", "loops", "empty_patches"),
    *("solved_without_read", "network", "other_commits", "named_commits", "foreign_commits"),
    *("template_dropped_tokens", "format_errors", "calls_as_text"),
)


def grid_rows(study: Study) -> list[Row]:
    """Return the matched contrasts within a grid of deletion arms."""
    return [
        {
            **identity(g.group),
            "dimension": m.dimension,
            "level": m.level,
            "against": m.against,
            "n_pairs_of_arms": len(m.pairs),
            "n_instances": m.n_instances,
            "status": "exploratory",
            **_ratio_columns(m.ratios),
            **({} if m.solve is None else estimate_columns("solve_difference", m.solve)),
            **{
                f"{outcome}_{word}_in": count(outcome)
                for outcome in (*m.ratios, *([] if m.solve is None else [SOLVE]))
                for word, count in (("lower", m.n_lower), ("higher", m.n_higher))
            },
        }
        for g in study.groups
        for m in g.matched
    ]


def grid_pair_rows(study: Study) -> list[Row]:
    """Return the matched pairs of arms one by one."""
    return [
        {
            **identity(g.group),
            "dimension": m.dimension,
            "level": m.level,
            "against": m.against,
            "arm": pair.arm,
            "against_arm": pair.against,
            "n_instances": pair.n_instances,
            "status": "exploratory",
            **_ratio_columns(pair.ratios),
            **({} if pair.solve is None else rate_columns("solve_difference", pair.solve)),
        }
        for g in study.groups
        for m in g.matched
        for pair in m.pairs
    ]


def _ratio_columns(ratios: Mapping[str, Estimate]) -> Row:
    columns: Row = {}
    for outcome, estimate in ratios.items():
        columns |= estimate_columns(f"{outcome}_ratio", estimate)
    return columns


def window_rows(study: Study) -> list[Row]:
    """Return, by arm, how many runs would have fitted into smaller context windows."""
    return [
        {
            **identity(g.group),
            "arm": name,
            "window_tokens": window,
            "runs_that_fit": int((arm.metrics["peak_context_tokens"] <= window).sum()),
            "n_runs": int(arm.done.sum()),
        }
        for g in study.groups
        for name, arm in g.group.arms.items()
        for window in WINDOWS
    ]


def prior_rows(study: Study) -> list[Row]:
    """Return the differences in solve rate that are adjusted for the difficulty prior."""
    return [{**identity(g.group), **asdict(d)} for g in study.groups for d in g.by_prior]


def fork_rows(study: Study) -> list[Row]:
    """Return what runs that began with another one shared, as if run and as run."""
    return [{**identity(g.group), **asdict(t)} for g in study.groups for t in g.forks]


def look_rows(study: Study) -> list[Row]:
    """Return what the planned looks decided, with effects that are corrected for them."""
    return [
        {
            **identity(g.group),
            **{name: getattr(d, name) for name in _DECISION_COLUMNS},
            "adjusted_difference": None if d.effect is None else d.effect.value,
            "adjusted_difference_low": None if d.effect is None else d.effect.low,
            "adjusted_difference_high": None if d.effect is None else d.effect.high,
        }
        for g in study.groups
        for d in g.decisions
    ]


_DECISION_COLUMNS = (
    *("arm", "look", "n_looks", "n_instances", "n_complete", "boundary"),
    *("z_not_worse", "z_worse", "verdict"),
)


WINDOWS = (16_384, 24_576, 32_768, 65_536)
"""Context windows, tokens."""
