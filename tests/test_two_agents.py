"""Two scaffolds in one sweep, by the one command: run, graded, analysed, reported."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.records.layout import Layout
from tests.words import words_of


def test_a_sweep_of_two_agents_runs_to_a_report_that_says_what_each_is(tmp_path: Path):
    words = words_of(
        *("+sweep=two_agents", f"results={tmp_path}/r", "instances.ids=[toy__ledger-1]"),
        *("~arms.dedup", "~arms.supersede_writes", "~arms.plan_prune"),
    )
    argv = [sys.executable, "-m", "pipeline.launch", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    layout = Layout(tmp_path / "r")
    runs = pq.read_table(layout.table_file("runs")).to_pylist()
    arms = ("full_history", "observation_mask", "delete_both")
    assert sorted((run["agent"], run["arm"]) for run in runs) == sorted(
        (agent, arm) for agent in ("mini", "trae") for arm in arms
    )
    # Blocks hold the arms of one agent.
    assert len({run["block_id"] for run in runs}) == 2
    assert len({(run["block_id"], run["agent"]) for run in runs}) == 2
    grades = pq.read_table(layout.table_file("grades")).to_pylist()
    assert {grade["run_id"] for grade in grades} == {run["run_id"] for run in runs}
    page = (layout.report / "report.html").read_text()
    assert "scaffold mini; submits by sentinel; reasoning kept in its history" in page
    assert "scaffold trae; submits by diff; reasoning dropped from its history" in page
