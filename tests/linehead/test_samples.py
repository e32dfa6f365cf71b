"""Which outputs are labelled, from files and from tables."""

import json
from pathlib import Path

import pytest

from pipeline.ingest import main as ingest
from pipeline.linehead.samples import samples_of
from pipeline.linehead.settings import SampleSettings
from pipeline.linehead.sources import recorded_runs, shown_first
from pipeline.records.rebuild import RunTables
from tests.linehead.runs import lines, many_lines, run_of

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "trajectories"


def indices(runs, **settings):
    return [(s.run.run_id, s.message_index) for s in samples_of(runs, SampleSettings(**settings))]


def test_outputs_of_15_to_500_lines_are_taken():
    run = run_of(*[("", f"c{n}", many_lines(n)) for n in (14, 15, 500, 501)])
    assert indices([run]) == [("run", 5), ("run", 7)]


def test_an_output_that_came_before_is_taken_once():
    run = run_of(("", "a", many_lines(20)), ("", "b", many_lines(20)))
    assert indices([run]) == [("run", 3)]
    assert indices([run], drop_repeats=False) == [("run", 3), ("run", 5)]


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_the_runs():
    runs = [
        run_of(*[("", "c", many_lines(20, f"{r}{i}")) for i in range(6)], run_id=f"r{r}")
        for r in range(4)
    ]
    drawn = indices(runs, max_samples=5, max_per_run=3)
    assert len(drawn) == 5
    assert max(map([run_id for run_id, _ in drawn].count, ("r0", "r1", "r2", "r3"))) <= 3
    assert sorted(indices(runs[::-1], max_samples=5, max_per_run=3)) == sorted(drawn)
    assert indices(runs, max_samples=5, max_per_run=3, seed=1) != drawn


def test_results_of_the_plan_tool_are_never_taken():
    run = run_of(("", "c", many_lines(20)), tool="planctl")
    assert indices([run]) == []


def test_a_path_without_runs_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"holds no trajectory and no tables/runs"):
        list(recorded_runs([tmp_path]))
    bad = tmp_path / "x.traj.json"
    bad.write_text(json.dumps({"messages": []}))
    with pytest.raises(ValueError, match=r"x\.traj\.json is no trajectory"):
        list(recorded_runs([bad]))


def test_contents_are_those_that_the_first_call_after_them_saw():
    def message(index, step, role, content, **more):
        row = dict.fromkeys(
            ("reasoning", "tool_calls", "tool_call_id", "tool", "command", "returncode")
        )
        counts = dict.fromkeys(("n_tokens", "reasoning_tokens", "n_lines", "dropped_bytes"), 0)
        return {**row, **counts, "message_index": index, "step_index": step, "role": role,
                "content": content, **more}  # fmt: skip

    def call(count, *edits, kind="step"):
        changes = {"edits": [[i, "content", text, "elide"] for i, text in edits]}
        return {"message_count": count, "kind": kind, "view_edits": json.dumps(changes)}

    tables = RunTables(
        run={},
        messages=[
            message(0, 0, "user", "task"),
            message(1, 1, "assistant", ""),
            message(2, 1, "tool", "all of it", tool="bash"),
            message(3, 2, "assistant", ""),
            message(4, 2, "tool", "the last one", tool="bash"),
        ],
        calls=[call(1), call(3, (2, "a part")), call(5, (2, "pruned"), kind="cleanup")],
        plan_events=[],
    )
    contents = [m.content for m in shown_first(tables).messages]
    assert contents == ["task", "", "a part", "", "the last one"]


def test_a_run_has_the_same_id_and_outputs_from_its_file_and_from_the_tables(tmp_path):
    if not REAL.exists():
        pytest.skip(f"{REAL} is not here: the recorded trajectories are not part of the project")
    file = sorted(REAL.glob("*.traj.json"))[0]
    assert ingest([str(file), "--out", str(tmp_path / "r"), "--token-counter", "chars/3.6"]) == 0
    (from_file,) = recorded_runs([file])
    (from_tables,) = recorded_runs([tmp_path / "r"])
    assert from_file.run_id == from_tables.run_id
    found = [samples_of([run], SampleSettings()) for run in (from_file, from_tables)]
    assert [s.text for s in found[0]] == [s.text for s in found[1]]
    assert len(found[0]) == 16


def test_lines_are_counted_as_they_are_labelled():
    run = run_of(("", "c", lines(*["x"] * 14) + "no newline at the end"))
    assert indices([run]) == [("run", 3)]
