"""The result tables as rows: what becomes CSV, Parquet and LaTeX, one function a table."""

import numpy as np

from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.contrasts import Contrast
from pipeline.analysis.detail_tables import (
    behaviour_rows,
    cost_rows,
    fork_rows,
    grid_pair_rows,
    grid_rows,
    look_rows,
    price_regret_rows,
    price_sweep_rows,
    prior_rows,
    repository_rows,
    saving_rows,
    score_rows,
    splice_rows,
    window_rows,
)
from pipeline.analysis.gate import Gate
from pipeline.analysis.gate_runs import TABLE as GATE_RUNS
from pipeline.analysis.outcomes import METRICS
from pipeline.analysis.study import GroupStudy, Study
from pipeline.analysis.table_columns import Row, estimate_columns, identity, rate_columns


def contrast_rows(study: Study) -> list[Row]:
    """Return one row a contrast, with every estimate and its interval."""
    return [{**identity(g.group), **_contrast_row(c)} for g in study.groups for c in g.contrasts]


def _contrast_row(contrast: Contrast) -> Row:
    row: Row = {
        "arm": contrast.arm,
        "reference": contrast.reference,
        "status": "planned" if contrast.is_planned else "exploratory",
        "n_instances": contrast.n_instances,
        "n_paired": contrast.n_paired,
    }
    for metric, estimate in contrast.ratios.items():
        row |= estimate_columns(f"{metric}_ratio", estimate)
    for metric, estimate in contrast.geometric.items():
        row |= estimate_columns(f"{metric}_geometric_ratio", estimate)
    row |= {
        "input_tokens_holm_p": contrast.tokens_holm_p,
        "cleanup_share": contrast.cleanup_share,
        "aux_share": contrast.aux_share,
    }
    row |= estimate_columns("n_steps_median_ratio", contrast.median_steps_ratio)
    row |= estimate_columns("peak_median_ratio", contrast.peak_ratio)
    row |= estimate_columns("peak_paired_ratio", contrast.paired_peak_ratio)
    row |= {"n_peak_lower": contrast.n_peak_lower, **_solve_columns(contrast)}
    if contrast.full_price is not None:
        row |= estimate_columns("full_price_input_tokens_ratio", contrast.full_price.ratio)
        row["full_price_view"] = contrast.full_price.view
    for cost in contrast.costs:
        row |= estimate_columns(f"cost_{cost.prices}_ratio", cost.ratio)
        row |= {
            f"cost_{cost.prices}_view": cost.view,
            f"cheaper_at_same_rate_{cost.prices}": cost.prices in contrast.cheaper_under,
        }
    return row


def _solve_columns(contrast: Contrast) -> Row:
    solve = contrast.solve
    if solve is None:
        return {}
    return {
        "solve_rate": solve.arm_rate,
        "reference_solve_rate": solve.reference_rate,
        **rate_columns("solve_difference", solve.difference),
        "solve_test": solve.test.method,
        "solve_test_p": solve.test.p_value,
        "solve_holm_p": solve.holm_p,
        "margin": solve.sameness.margin,
        "sameness_method": solve.sameness.method,
        "sameness_low": solve.sameness.low,
        "sameness_high": solve.sameness.high,
        "is_noninferior": solve.sameness.is_noninferior,
        "is_equivalent": solve.sameness.is_equivalent,
        "worst_case_low": solve.worst_case.low,
        "worst_case_high": solve.worst_case.high,
        "n_won": len(solve.won),
        "n_lost": len(solve.lost),
    }


def arm_rows(study: Study) -> list[Row]:
    """Return one row an arm: its own figures, without comparison."""
    rate = study.lock.spec.cluster.su_per_gpu_hour if study.lock else float("nan")
    gpu_hour = study.pricing.gpu_hour
    priced = {} if gpu_hour is None else {"gpu_cost_total": gpu_hour}
    return [
        row | {name: price * row["gpu_hours_total"] for name, price in priced.items()}
        for g in study.groups
        for row in (_arm_row(g, arm, rate) for arm in g.group.arms)
    ]


def _arm_row(study: GroupStudy, name: str, su_per_gpu_hour: float) -> Row:
    arm = study.group.arms[name]
    graded = arm.graded
    row: Row = {
        **identity(study.group),
        "arm": name,
        "n_seeds": len(arm.seeds),
        "n_planned": int(arm.planned.sum()),
        "n_done": int(arm.done.sum()),
        "n_graded_instances": int(graded.sum()),
        "solve_rate": _mean(seed_means(arm.resolved[graded])),
        "solve_rate_with_limit_patches": _mean(seed_means(arm.resolved_or_limit[graded])),
        "gpu_hours_total": float(arm.metrics["gpu_s"][arm.done].sum()) / 3600,
        "service_units_total": float(arm.metrics["gpu_s"][arm.done].sum()) / 3600 * su_per_gpu_hour,
    }
    for k, at, hat in study.passes[name]:
        row |= {f"pass_at_{k}": at, f"pass_hat_{k}": hat}
    for metric in METRICS:
        means = arm.mean_of(metric)
        row |= {f"{metric}_mean": _mean(means), f"{metric}_median": _median(means)}
    noise = study.noise[name]
    return row | {
        "seed_discordance": noise.discordance,
        "seed_token_ratio_low": noise.token_ratio_low,
        "seed_token_ratio_high": noise.token_ratio_high,
        "seed_token_log_sd": noise.token_log_sd,
        "seed_step_log_sd": noise.step_log_sd,
    }


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def tally_rows(study: Study) -> list[Row]:
    """Return where every planned run went; the counts of a row add up."""
    return [
        {
            "model": row.model,
            "agent": row.agent,
            "arm": row.arm,
            "planned": row.planned,
            **row.endings,
            "done": row.done,
            **row.grades,
            "loops": row.loops,
            "no_status": row.no_status,
            "test_settings": row.test_settings,
        }
        for row in study.gate.tally
    ]


def gate_run_rows(gate: Gate) -> list[Row]:
    """Return every run that one of the gate's counts is about."""
    return [
        {"problem": problem.code, "run_id": run_id}
        for problem in gate.problems
        for run_id in problem.runs
    ]


def treatment_rows(study: Study) -> list[Row]:
    """Return what became of each arm's treatment: runs by verdict, and edits."""
    return [
        {
            "model": t.model,
            "agent": t.agent,
            "arm": t.arm,
            "n_runs": t.n_runs,
            "never_treated": t.never_treated,
            **t.verdicts,
            "n_edits": sum(t.edits.values()),
            "edits": t.edits_sentence,
            "outputs_judged": t.n_judged,
            "pruner_errors": t.n_pruner_errors,
        }
        for t in study.gate.treatments
    ]


def budget_rows(study: Study) -> list[Row]:
    """Return what arms with a budget came to beside what was asked."""
    return [
        {
            "model": t.model,
            "agent": t.agent,
            "arm": t.arm,
            "measure": b.measure,
            "parameter": b.parameter,
            "n_runs": b.n_runs,
            "requested_tokens": b.requested,
            "pilot_tokens": b.pilot,
            "achieved_tokens": b.achieved,
            "achieved_ratio": b.ratio,
            "n_capped_donors": b.n_capped_donors,
        }
        for t in study.gate.treatments
        for b in t.budgets
    ]


def unpaired_rows(study: Study) -> list[Row]:
    """Return every instance that a contrast could not use, and why."""
    rows = []
    for g in study.groups:
        for c in g.contrasts:
            for name in c.unpaired:
                i = g.group.instance_ids.index(name)
                lacking = [
                    arm for arm in (c.arm, c.reference) if not bool(g.group.arms[arm].complete[i])
                ]
                rows.append(
                    {
                        **identity(g.group),
                        "arm": c.arm,
                        "instance_id": name,
                        "incomplete_in": " ".join(lacking),
                    }
                )
    return rows


def flip_rows(study: Study) -> list[Row]:
    """Return the instances whose seed means of resolved differ between arm and reference."""
    rows = []
    for g in study.groups:
        for c in g.contrasts:
            if c.solve is None:
                continue
            for name in (*c.solve.won, *c.solve.lost):
                i = g.group.instance_ids.index(name)
                rows.append(
                    {
                        **identity(g.group),
                        "arm": c.arm,
                        "instance_id": name,
                        "direction": "won" if name in c.solve.won else "lost",
                        "arm_solved": _mean(g.group.arms[c.arm].resolved[i]),
                        "reference_solved": _mean(g.group.arms[c.reference].resolved[i]),
                    }
                )
    return rows


def power_rows(study: Study) -> list[Row]:
    """Return the power table."""
    return [
        {
            "n_instances": row.n_instances,
            "discordance": row.discordance,
            "detectable_difference": row.detectable_difference,
            "noninferiority_power": row.noninferiority_power,
            "margin": row.margin,
            "n_for_noninferiority": row.n_for_noninferiority,
        }
        for row in study.power
    ]


ALL_TABLES = {
    "contrasts": contrast_rows,
    "arms": arm_rows,
    "tally": tally_rows,
    GATE_RUNS: lambda study: gate_run_rows(study.gate),
    "treatment": treatment_rows,
    "budgets": budget_rows,
    "unpaired": unpaired_rows,
    "flips": flip_rows,
    "power": power_rows,
    "savings": saving_rows,
    "repositories": repository_rows,
    "costs": cost_rows,
    "price_sweep": price_sweep_rows,
    "price_regret": price_regret_rows,
    "splices": splice_rows,
    "scores": score_rows,
    "behaviour": behaviour_rows,
    "windows": window_rows,
    "grid": grid_rows,
    "grid_pairs": grid_pair_rows,
    "looks": look_rows,
    "forks": fork_rows,
    "by_prior": prior_rows,
}
"""File stem to the function that makes its rows."""
