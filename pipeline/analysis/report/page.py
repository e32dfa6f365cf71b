"""The report: one HTML file with everything in it, for five minutes of a supervisor's time.

The template (`report.html.j2`) holds words and order; this module prepares what it shows. Figures
are embedded, nothing is fetched, and every caption carries its evidence label.
"""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isnan
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from pipeline.analysis import wording
from pipeline.analysis.contrasts import Contrast
from pipeline.analysis.figures.drawn import Drawn
from pipeline.analysis.figures.style import evidence_word, short_number
from pipeline.analysis.paired_table import HEADER, paired_rows
from pipeline.analysis.scores import score_sentences
from pipeline.analysis.study import GroupStudy, Study
from pipeline.analysis.tally import ENDINGS, GRADES
from pipeline.plural import plural
from pipeline.spec.agent import AgentSpec

MAX_NAMED = 40
"""Instance ids listed in the page itself; all of them are in tables/."""


def report_page(study: Study, figures: Sequence[Drawn], pages: Mapping[str, str]) -> str:
    """Return the report as HTML.

    Args:
        study: what was found.
        figures: drawn already; they are embedded.
        pages: run to its page, relative to the report.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["short"] = _short
    environment.filters["plural"] = plural
    environment.filters["percent"] = wording.percent
    environment.filters["p"] = wording.p_value
    environment.filters["ratio"] = wording.ratio
    environment.filters["signed"] = wording.signed
    environment.filters["points"] = wording.points
    environment.filters["difference"] = wording.solve_difference
    source = files("pipeline.analysis.report").joinpath("report.html.j2").read_text("utf-8")
    return environment.from_string(source).render(
        title=study.lock.spec.name if study.lock else study.results.name,
        study=study,
        evidence=evidence_word(study.evidence) or "live runs",
        is_live=study.evidence == "live",
        blocking=[p for p in study.gate.problems if p.blocks],
        notes=[p for p in study.gate.problems if not p.blocks],
        tally=_tally(study),
        groups=[_group(g, figures, pages) for g in study.groups],
        power=study.power,
        pricing=study.pricing,
        facts=_facts(study),
    )


def _short(value: float) -> str:
    return wording.UNKNOWN if isnan(value) else short_number(value)


def _group(study: GroupStudy, figures: Sequence[Drawn], pages: Mapping[str, str]) -> dict[str, Any]:
    group = study.group
    return {
        "title": group.title,
        "evidence": evidence_word(group.evidence),
        "n_instances": len(group.instance_ids),
        "n_repos": len(set(group.repos)),
        "seeds": wording.seeds_words(group),
        "reference": study.reference,
        "arms": list(group.arms),
        "excluded": group.excluded,
        "header": HEADER,
        "rows": paired_rows(study),
        "contrasts": study.contrasts,
        "verdicts": [wording.verdict(c) for c in study.contrasts],
        "caveats": wording.caveats(study.contrasts),
        "any_exploratory": any(not c.is_planned for c in study.contrasts),
        "cost_note": wording.cost_note(study.contrasts),
        "claims": [_claim(c) for c in study.contrasts],
        "noise": study.noise,
        "noise_sentence": wording.noise_sentence(study.reference, study.noise[study.reference]),
        "matched": study.matched,
        "agent": group.agent,
        "grid": study.grid,
        "cheaper": study.cheaper,
        "grid_prices": next(
            (c.caching_cost.prices for c in study.contrasts if c.caching_cost is not None), ""
        ),
        "decisions": study.decisions,
        "forks": study.forks,
        "by_prior": [(d, wording.points(d)) for d in study.by_prior],
        "matched_outcomes": _MATCHED_OUTCOMES,
        "gpu": ", ".join(
            f"{c.arm} {wording.ratio(c.ratios['gpu_s'])}"
            for c in study.contrasts
            if not isnan(c.ratios["gpu_s"].value)
        ),
        "passes": study.passes,
        "n_passes": max((len(p) for p in study.passes.values()), default=0),
        "unpaired": _unpaired(study),
        "flips": [_flips(study, c, pages) for c in study.contrasts if c.solve is not None],
        "savings": [(arm, s) for arm, found in study.savings.items() for s in found],
        "bands": [(arm, b) for arm, found in study.bands.items() for b in found],
        "repositories": [(arm, r) for arm, found in study.repositories.items() for r in found],
        "bills": study.bills,
        "sweeps": study.price_sweeps,
        "price_regrets": study.price_regrets,
        "splice_uses": study.splice_uses,
        "scores": score_sentences(study.scores),
        "behaviour": study.behaviour,
        "leaking": study.leaking,
        "without_leaks": study.without_leaks,
        "figures": {f.name: _embedded(f) for f in figures if f.group == group.title},
    }


_MATCHED_OUTCOMES = {
    "input_tokens": "input tokens",
    "n_steps": "turns",
    "refetches": "re-fetches",
}
"""Outcomes of matched arms that have a column of their own in the report, beside costs."""


def _embedded(figure: Drawn) -> dict[str, str]:
    data = base64.b64encode(Path(figure.svg).read_bytes()).decode()
    return {"src": f"data:image/svg+xml;base64,{data}", "caption": figure.caption}


def _claim(contrast: Contrast) -> dict[str, str]:
    """Return the claims of one arm as cells: what may and what may not be said."""
    solve = contrast.solve
    tokens = contrast.tokens
    cells = {
        "arm": contrast.arm,
        "pairs": f"{contrast.n_paired} of {contrast.n_instances}",
        "tokens_bca": f"[{tokens.bca_low:.2f}, {tokens.bca_high:.2f}]"
        if not isnan(tokens.bca_low)
        else wording.UNKNOWN,
        "tokens_geometric": wording.ratio(contrast.geometric["input_tokens"]),
        "tokens_p": wording.p_value(contrast.tokens_holm_p),
        "full_price": wording.UNKNOWN
        if contrast.full_price is None
        else wording.ratio(contrast.full_price.ratio),
        "steps": wording.ratio(contrast.ratios["n_steps"]),
        "median_steps": wording.ratio(contrast.median_steps_ratio),
        "output": wording.ratio(contrast.ratios["output_tokens"]),
        "peak_paired": wording.ratio(contrast.paired_peak_ratio),
        "peak_lower": f"{contrast.n_peak_lower} of {contrast.n_paired}",
    }
    if solve is None:
        return cells | dict.fromkeys(
            ("test", "raw_p", "same", "worst_case", "cheaper"), "not graded"
        )
    worst = solve.worst_case
    return cells | {
        "test": solve.test.method,
        "raw_p": wording.p_value(solve.test.p_value),
        "same": f"{solve.sameness.sentence} ({solve.sameness.method}: "
        f"{100 * solve.sameness.low:+.1f} to {100 * solve.sameness.high:+.1f})",
        "worst_case": "no pair lost"
        if worst.n_planned == worst.n_paired
        else f"{100 * worst.low:+.1f} to {100 * worst.high:+.1f}",
        "cheaper": wording.cheaper_by_list(contrast),
    }


def _flips(study: GroupStudy, contrast: Contrast, pages: Mapping[str, str]) -> dict[str, Any]:
    """Return the instances won and lost, with the pages of their runs where there are any."""
    assert contrast.solve is not None

    def named(name: str) -> dict[str, Any]:
        at = study.group.instance_ids.index(name)
        runs = [
            (f"{arm} s{seed}", pages[run_id])
            for arm in (contrast.reference, contrast.arm)
            for seed, run_id in zip(
                study.group.arms[arm].seeds, study.group.arms[arm].run_id[at], strict=True
            )
            if run_id in pages
        ]
        return {"id": name, "pages": runs}

    return {
        "arm": contrast.arm,
        "won": [named(name) for name in contrast.solve.won],
        "lost": [named(name) for name in contrast.solve.lost],
        "n_won": len(contrast.solve.won),
        "n_lost": len(contrast.solve.lost),
    }


def _unpaired(study: GroupStudy) -> list[dict[str, Any]]:
    return [
        {"arm": c.arm, "n": len(c.unpaired), "names": _named(c.unpaired)}
        for c in study.contrasts
        if c.unpaired
    ]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    rest = len(names) - MAX_NAMED
    return f"{shown} and {rest} more (tables/)" if rest > 0 else shown or "none"


def _tally(study: Study) -> dict[str, Any]:
    """Return the tally with columns that are zero everywhere left out."""
    rows = study.gate.tally
    endings = [e for e in ENDINGS if any(row.endings.get(e) for row in rows)]
    grades = [g for g in GRADES if any(row.grades.get(g) for row in rows)]
    return {"rows": rows, "endings": endings, "grades": grades}


def _facts(study: Study) -> list[tuple[str, str]]:
    """Return what was analysed under which plan, as label and value."""
    plan, lock = study.plan, study.lock
    facts = [
        ("evidence", evidence_word(study.evidence) or "live"),
        ("reference arm", plan.reference),
        ("planned contrasts", ", ".join(plan.contrasts) or "every other arm"),
        ("margin for sameness", f"{100 * plan.margin:g} points, one-sided 0.025"),
        ("Holm families", ", ".join(plan.holm_outcomes)),
        ("resamples", f"{plan.resamples} of instances, seed {plan.resampling_seed}"),
        ("lost pairs allowed", f"{100 * plan.max_missing_share:g}% of a contrast's"),
        ("excluded beforehand", ", ".join(plan.exclusions) or "none"),
    ]
    if lock is None:
        return [*facts, ("plan fixed before the sweep", "no: there is no lock")]
    return [
        *facts,
        ("plan fixed before the sweep", f"yes, {lock.analysis_sha256[:12] or 'hash missing'}"),
        *((f"agent {name}", _agent(agent)) for name, agent in lock.spec.agents.items()),
        ("launched", lock.created_at),
        ("commit", lock.commit or "unknown"),
        ("uncommitted changes", lock.dirty_sha256[:12] if lock.dirty_sha256 else "none"),
        ("dataset", lock.dataset_sha256[:12]),
        ("versions", ", ".join(f"{k} {v}" for k, v in lock.versions.items())),
    ]


def _agent(agent: AgentSpec) -> str:
    """Return what of an agent a reader of its numbers must know."""
    kept = "kept in" if agent.keeps_reasoning else "dropped from"
    return (
        f"scaffold {agent.scaffold}; submits by {agent.submit}; reasoning {kept} its history; "
        f"{agent.step_limit or 'no limit of'} steps"
    )
