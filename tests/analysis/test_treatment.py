"""Budgets: what was asked stands beside what the runs came to."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.analysis.publish import analyze_results
from pipeline.analysis.tables import open_tables
from pipeline.analysis.treatment import mistreated, treatments_of

from .conftest import edit_table


def with_budget(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        if row["arm"] == "plan_prune":
            facts = {
                "treatment": {"verdict": "treated", "edits": {"prune": 2}},
                "budget": {
                    "parameter": "random_rate",
                    "value": 0.5,
                    "match_on": "peak",
                    "requested_tokens": 20_000 + 1_000 * row["seed"],
                    "pilot_tokens": 21_000,
                    "capped_donor_seeds": [1] if row["seed"] == 0 else [],
                },
            }
            row["extra"] = json.dumps(facts)
            row["peak_context_tokens"] = 30_750
    return rows


def test_achieved_budgets_stand_beside_what_was_asked(sweep: Path):
    edit_table(sweep, "runs", with_budget)
    with open_tables(sweep) as connection:
        found = {t.arm: t for t in treatments_of(connection)}
    (budget,) = found["plan_prune"].budgets
    assert (budget.measure, budget.parameter, budget.n_runs) == ("peak", "random_rate", 48)
    assert budget.requested == pytest.approx(20_500)
    assert budget.achieved == pytest.approx(30_750)
    assert budget.ratio == pytest.approx(1.5)
    assert budget.n_capped_donors == 24
    assert found["plan_prune"].edits == {"prune": 96}
    assert found["full_history"].budgets == ()


@pytest.mark.parametrize(("n_errors", "blocks"), [(1, False), (9, True)])
def test_a_line_pruner_that_failed_is_not_passed_over(sweep: Path, n_errors: int, blocks: bool):
    def with_errors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            if row["arm"] == "plan_prune":
                told = {"verdict": "treated", "n_judged": 10, "n_pruner_errors": n_errors}
                row["extra"] = json.dumps({"treatment": told})
        return rows

    edit_table(sweep, "runs", with_errors)
    with open_tables(sweep) as connection:
        (problem,) = mistreated(treatments_of(connection), ["full_history"])
    assert (problem.code, problem.blocks) == ("pruner_errors", blocks)
    assert f"failed on {48 * n_errors} of 480 outputs" in problem.sentence


def test_the_report_shows_treatment_and_budgets(sweep: Path, tmp_path: Path):
    edit_table(sweep, "runs", with_budget)
    summary = analyze_results(sweep, tmp_path / "report")
    page = summary.report.read_text()
    assert "prune 96" in page
    assert "<td>random_rate</td>" in page
    assert "1.5" in (summary.out / "tables/budgets.csv").read_text()
    assert "treated" in (summary.out / "tables/treatment.csv").read_text()
