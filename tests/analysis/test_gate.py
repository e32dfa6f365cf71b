"""What is refused, what is only said, and a tally that adds up whatever happened."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.gate import Gate, InvalidSweepError, checked, refusal
from pipeline.analysis.gate_runs import RUNS_OF, shrunk_prompts, with_runs
from pipeline.analysis.publish import analyze_results
from pipeline.analysis.tables import open_tables
from pipeline.records.layout import Layout

from .conftest import edit_table

Row = dict[str, Any]


def gate_of(results: Path, *, has_lock: bool = True) -> Gate:
    with open_tables(results) as connection:
        gate = checked(connection, has_lock=has_lock)
        return replace(gate, problems=tuple(with_runs(connection, gate.problems)))


def codes(gate: Gate, *, blocking: bool = True) -> set[str]:
    return {p.code for p in gate.problems if p.blocks is blocking}


def changed(position: int, **values: Any) -> Callable[[list[Row]], list[Row]]:
    """Return an edit that changes one row."""

    def edit(rows: list[Row]) -> list[Row]:
        rows[position] |= values
        return rows

    return edit


def test_a_whole_sweep_passes(pristine: Path):
    gate = gate_of(pristine)
    assert gate.passes
    assert gate.problems == ()
    assert all(row.adds_up for row in gate.tally)
    assert sum(row.planned for row in gate.tally) == 24 * 2 * 4


@pytest.mark.parametrize(
    ("table", "edit", "code"),
    [
        ("runs", lambda rows: rows[1:], "missing_runs"),
        ("runs", changed(0, failure_class="infra_server"), "missing_runs"),
        ("runs", changed(0, output_tokens=0), "zero_tokens"),
        ("runs", changed(0, run_id="of-another-config"), "mixed_science"),
        ("runs", changed(0, evidence="live"), "mixed_evidence"),
        ("runs", changed(0, failure_class="limit_time"), "wall_limit"),
        ("runs", changed(0, failure_class="limit_context"), "window"),
        ("grades", changed(0, harness_version="4.9"), "mixed_harness"),
        ("grades", changed(0, patch_sha256="another"), "stale_grades"),
        ("grades", changed(0, grade_class="grade_infra", resolved=None), "grade_infra"),
        ("grades", lambda rows: rows[1:], "half_graded"),
    ],
)
def test_a_damaged_sweep_is_refused_with_a_remedy(
    sweep: Path, table: str, edit: Callable[[list[Row]], list[Row]], code: str
):
    edit_table(sweep, table, edit)
    gate = gate_of(sweep)
    assert code in codes(gate)
    assert all(row.adds_up for row in gate.tally)
    problem = next(p for p in gate.problems if p.code == code)
    assert problem.remedy in refusal(gate)
    if code in RUNS_OF or code.startswith("mixed_"):
        assert problem.runs
        assert problem.runs[0] in problem.sentence


def test_a_mixture_names_the_runs_that_are_not_as_most_are(sweep: Path):
    edit_table(sweep, "runs", changed(3, evidence="live"))
    (problem,) = [p for p in gate_of(sweep).problems if p.code == "mixed_evidence"]
    assert problem.runs == (table_of(sweep, "runs")[3]["run_id"],)
    assert "live (1 run)" in problem.sentence


def test_a_count_names_its_first_runs_and_the_table_with_all(sweep: Path):
    edit_table(sweep, "grades", lambda rows: rows[5:])
    gate = gate_of(sweep)
    (problem,) = [p for p in gate.problems if p.code == "half_graded"]
    assert len(problem.runs) == 5
    assert ", ".join(problem.runs[:3]) in problem.sentence
    assert problem.runs[3] not in problem.sentence
    assert "tables/gate_runs.csv" in problem.sentence


def test_a_count_of_one_arm_names_the_runs_of_that_arm_alone(sweep: Path):
    def two_arms_at_the_limit(rows: list[Row]) -> list[Row]:
        for arm in ("full_history", "plan_prune"):
            next(row for row in rows if row["arm"] == arm)["failure_class"] = "limit_time"
        return rows

    edit_table(sweep, "runs", two_arms_at_the_limit)
    problems = [p for p in gate_of(sweep).problems if p.code == "wall_limit"]
    arms = {str(run["run_id"]): run["arm"] for run in table_of(sweep, "runs")}
    assert [[arms[run] for run in p.runs] for p in problems] == [["full_history"], ["plan_prune"]]


def test_a_refused_analysis_leaves_the_table_of_the_runs_that_it_counts(sweep: Path):
    edit_table(sweep, "grades", lambda rows: rows[5:])
    with pytest.raises(InvalidSweepError) as refused:
        analyze_results(sweep)
    path = Layout(sweep).report / "tables" / "gate_runs.csv"
    assert str(path) in str(refused.value)
    counted = list(csv.DictReader(path.read_text().splitlines()))
    ungraded = {row["run_id"] for row in counted if row["problem"] == "half_graded"}
    graded = {row["run_id"] for row in table_of(sweep, "grades")}
    assert ungraded == {row["run_id"] for row in table_of(sweep, "runs")} - graded
    assert ungraded == {row["run_id"] for row in counted if row["problem"] == "lost_pairs"}


@pytest.mark.parametrize(
    ("table", "changes", "code"),
    [
        ("grades", {"n_statuses": 0}, "no_statuses"),
        ("grades", {"test_settings": "conftest.py"}, "test_settings"),
        ("grades", {"grade_class": "grade_timeout", "resolved": False}, "grade_timeout"),
        ("runs", {"n_pruner_errors": 1, "extra": '{"treatment": {"n_judged": 9, '
         '"n_pruner_errors": 1}}'}, "pruner_errors"),
        ("runs", {"extra": '{"treatment": {"verdict": "untreated"}}'}, "untreated_arm"),
        ("runs", {"extra": '{"treatment": {"verdict": "unexpected"}}'}, "unexpected_edits"),
    ],
)  # fmt: skip
def test_every_count_of_runs_names_them(sweep: Path, table: str, changes: Row, code: str):
    edit_table(sweep, table, changed(0, **changes))
    (problem,) = [p for p in gate_of(sweep).problems if p.code == code]
    assert problem.runs == (table_of(sweep, table)[0]["run_id"],)
    assert problem.runs[0] in problem.sentence


def test_nothing_is_graded_is_said_only_where_no_run_has_a_grade(sweep: Path):
    def only_stale_ones(rows: list[Row]) -> list[Row]:
        return [row | {"patch_sha256": "another"} for row in rows[:18]]

    edit_table(sweep, "grades", only_stale_ones)
    sentences = {p.code: p.sentence for p in gate_of(sweep).problems}
    assert "no_grades" not in sentences
    assert sentences["stale_grades"].startswith("18 grades are of another patch")
    assert sentences["half_graded"].startswith("174 finished runs are not graded")


def table_of(results: Path, name: str) -> list[Row]:
    return pq.read_table(Layout(results).table_file(name)).to_pylist()


Step = tuple[str, int, str | None]
"""Kind, prompt tokens, view edits of a call."""


@pytest.mark.parametrize(
    ("calls", "marked"),
    [
        ([("step", 100, None), ("step", 200, None), ("step", 150, None)], True),
        ([("step", 100, None), ("step", 200, None), ("step", 250, None)], False),
        ([("step", 200, None), ("step", 150, "{}")], False),
        ([("step", 200, None), ("cleanup", 210, "{}"), ("step", 150, None)], False),
        ([("step", 200, "{}"), ("step", 150, None)], True),
        ([("step", 200, None), ("summary", 50, None), ("step", 250, None)], False),
        ([("step", 200, None), ("step", None, None), ("step", 150, None)], True),
    ],
)
def test_a_prompt_that_shrank_without_an_edit_marks_its_run(calls: list[Step], marked: bool):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE done AS SELECT 'r1' AS run_id, 'live' AS evidence, "
        "0 AS template_dropped_tokens"
    )
    connection.execute(
        "CREATE TABLE calls (run_id TEXT, call_index INT, kind TEXT, prompt_tokens INT, "
        "view_edits TEXT)"
    )
    rows = [("r1", at, *call) for at, call in enumerate(calls)]
    connection.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?)", rows)
    assert bool(list(shrunk_prompts(connection))) == marked
    connection.execute("UPDATE done SET template_dropped_tokens = 7")
    assert list(shrunk_prompts(connection)) == []


def test_tests_that_rows_bring_along_are_no_other_harness(sweep: Path):
    def own_tests(rows: list[Row]) -> list[Row]:
        for row in rows:
            row["harness_version"] = f"harbor 1:{row['instance_id']}"
        return rows

    edit_table(sweep, "grades", own_tests)
    assert "mixed_harness" not in codes(gate_of(sweep))


def test_an_instance_graded_in_two_images_is_refused(sweep: Path):
    def two(rows: list[Row]) -> list[Row]:
        for place, row in enumerate(rows):
            row["image_digest"] = f"sha256:{place % 2}"
        return rows

    edit_table(sweep, "grades", two)
    assert "mixed_images" in codes(gate_of(sweep))


def test_an_instance_graded_in_another_image_than_was_locked_is_refused(sweep: Path):
    edit_table(sweep, "grades", lambda rows: [r | {"image_digest": "sha256:b"} for r in rows])
    name = pq.read_table(Layout(sweep).table_file("grades"))["instance_id"][0].as_py()
    with open_tables(sweep) as connection:
        other = checked(connection, has_lock=True, image_digests={name: "sha256:a"})
        same = checked(connection, has_lock=True, image_digests={name: "sha256:b"})
    assert codes(other) == {"other_images"}
    assert name in refusal(other)
    assert same.passes


def test_an_arm_whose_policy_never_acted_is_pointed_out(pristine: Path):
    with open_tables(pristine) as connection:
        gate = checked(connection, has_lock=True, acting_arms=["plan_prune", "full_history"])
    assert gate.passes
    (note,) = gate.problems
    assert "full_history took nothing away" in note.sentence


def test_a_sweep_without_grades_is_not_refused_but_told(sweep: Path):
    Layout(sweep).table_file("grades").unlink()
    gate = gate_of(sweep)
    assert gate.passes
    assert codes(gate, blocking=False) == {"no_grades"}


def test_an_empty_folder_has_nothing_to_analyse(tmp_path: Path):
    assert {"no_runs", "no_lock"} <= codes(gate_of(tmp_path, has_lock=False))


def test_infrastructure_failures_stand_apart_from_runs_that_never_ran(sweep: Path):
    edit_table(sweep, "runs", lambda rows: changed(0, failure_class="infra_node")(rows[1:]))
    gate = gate_of(sweep)
    sentence = next(p.sentence for p in gate.problems if p.code == "missing_runs")
    assert "2 of 192 planned runs have no result (1 failed on our side, 1 never ran)" in sentence


def test_repeated_run_ids_are_seen_because_the_tally_does_not_add_up(sweep: Path):
    edit_table(sweep, "runs", lambda rows: [*rows, rows[0]])
    assert "tally" in codes(gate_of(sweep))


def test_two_valid_runs_of_one_cell_and_instance_are_refused_by_name(sweep: Path):
    def twin(rows: list[Row]) -> list[Row]:
        return [*rows, rows[0] | {"run_id": "made-by-another-version"}]

    edit_table(sweep, "runs", twin)
    (problem,) = [p for p in gate_of(sweep).problems if p.code == "twin_runs"]
    assert "made-by-another-version" in problem.sentence
    assert problem.blocks


def test_an_attempt_that_failed_on_our_side_is_no_twin(sweep: Path):
    def failed(rows: list[Row]) -> list[Row]:
        return [*rows, rows[0] | {"run_id": "lost", "failure_class": "infra_node"}]

    edit_table(sweep, "runs", failed)
    assert "twin_runs" not in codes(gate_of(sweep))


def test_endings_that_nobody_knows_are_shown_with_their_text(sweep: Path):
    odd = {"failure_class": "unknown_ending", "exit_status": "OddError", "failure": "full moon"}
    edit_table(sweep, "runs", changed(0, **odd))
    (problem,) = [p for p in gate_of(sweep).problems if p.code == "unknown_endings"]
    assert "OddError (1): full moon" in problem.sentence
    assert not problem.blocks


def test_a_newer_schema_is_refused_with_the_way_out(sweep: Path):
    path = Layout(sweep).table_file("runs")
    table = pq.read_table(path)
    newer = {**table.schema.metadata, b"planprune.schema_version": b"99"}
    pq.write_table(table.replace_schema_metadata(newer), path)
    with pytest.raises(ValueError, match="schema version 99"):
        open_tables(sweep)


def test_a_launched_sweep_whose_plan_is_lost_is_refused(sweep: Path):
    Layout(sweep).plan.unlink()
    assert "no_plan" in codes(gate_of(sweep))
    assert "no_plan" not in codes(gate_of(sweep, has_lock=False))


def verdicts(arm: str, *words: str, **edits: int) -> Callable[[list[Row]], list[Row]]:
    """Return an edit that gives the first runs of an arm these verdicts, all with these edits."""

    def edit(rows: list[Row]) -> list[Row]:
        runs = [row for row in rows if row["arm"] == arm]
        given = words * len(runs) if len(words) == 1 else words
        for row, word in zip(runs, given, strict=False):
            row["extra"] = json.dumps({"treatment": {"verdict": word, "edits": edits}})
        return rows

    return edit


def test_a_run_whose_trigger_fired_without_an_edit_is_pointed_out(sweep: Path):
    edit_table(sweep, "runs", verdicts("plan_prune", "untreated", "treated"))
    gate = gate_of(sweep)
    (note,) = (p for p in gate.problems if p.code == "untreated_runs")
    assert "arm plan_prune" in note.sentence
    assert "1 of 48 runs" in note.sentence
    assert gate.passes


def test_an_arm_that_was_never_treated_though_its_trigger_fired_is_refused(sweep: Path):
    edit_table(sweep, "runs", verdicts("plan_prune", "untreated"))
    assert codes(gate_of(sweep)) == {"untreated_arm"}


def test_a_baseline_with_edits_is_refused(sweep: Path):
    edit_table(sweep, "runs", verdicts("full_history", "unexpected", "not_triggered", prune=3))
    with open_tables(sweep) as connection:
        gate = checked(connection, has_lock=True, baseline_arms=["full_history"])
    assert codes(gate) == {"treated_baseline"}
    (problem,) = gate.problems
    assert "prune 6" in problem.sentence


def test_runs_that_nobody_checked_are_unknown_and_refuse_nothing(pristine: Path):
    gate = gate_of(pristine)
    assert {t.verdicts["unknown"] for t in gate.treatments} == {48}
    assert {t.never_treated for t in gate.treatments} == {0}


def every_run_at_the_window(rows: list[Row]) -> list[Row]:
    return [row | {"failure_class": "limit_context"} for row in rows]


def test_a_window_that_binds_in_every_arm_alike_favours_none(sweep: Path):
    edit_table(sweep, "runs", every_run_at_the_window)
    assert "window" not in codes(gate_of(sweep))


def test_a_window_that_the_plan_studies_is_said_and_refuses_nothing(sweep: Path):
    edit_table(sweep, "runs", changed(0, failure_class="limit_context"))
    with open_tables(sweep) as connection:
        gate = checked(connection, has_lock=True, window_may_bind=True)
    (found,) = (p for p in gate.problems if p.code == "window")
    assert not found.blocks
    assert "1 of 48 runs of" in found.sentence
    assert "but 0 of 48 runs of" in found.sentence
