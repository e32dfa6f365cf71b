"""`git pull` between two launches: a finished sweep stays finished."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from tests.test_launch import command

ROOT = Path(__file__).resolve().parents[1]
SWEEP = ["instances.sample=null", "instances.ids=[toy__ledger-1,toy__tabular-1]", "grade=false"]
FIELD = 'kind: Science[Literal["full_history"]] = "full_history"'


@pytest.fixture
def checkout(tmp_path):
    """A checkout of its own, whose code a test may change."""
    for folder in ("pipeline", "conf"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / "checkout" / folder, ignore=ignored)
    return tmp_path / "checkout"


def launch(checkout, results, *overrides):
    argv = [sys.executable, *command(results, *SWEEP, *overrides)[1:]]
    return subprocess.run(
        argv, cwd=checkout, capture_output=True, text=True, timeout=240, check=False
    )


def add_field(checkout, declaration):
    """Give `full_history` one more parameter, as a later version would."""
    (path,) = [
        path
        for path in sorted(checkout.glob("pipeline/**/*.py"))
        if FIELD in path.read_text(encoding="utf-8")
    ]
    text = path.read_text(encoding="utf-8")
    text = text.replace("import Science", "import Science, added_science")
    path.write_text(text.replace(FIELD, f"{FIELD}\n    {declaration}"), encoding="utf-8")


def test_a_finished_sweep_has_nothing_to_do_after_a_science_field_was_added(checkout, tmp_path):
    results = tmp_path / "results"
    first = launch(checkout, results)
    assert first.returncode == 0, first.stderr
    layout = Layout(results)
    planned, journals = read_plan(layout.plan), layout.journal_paths()
    assert len(planned) == 4

    add_field(checkout, "polish: Science[int] = added_science(0)")
    again = launch(checkout, results)
    assert again.returncode == 0, again.stderr
    assert read_plan(layout.plan) == planned
    assert layout.journal_paths() == journals


def test_a_finished_sweep_has_nothing_to_do_after_the_rules_of_an_arm_changed(checkout, tmp_path):
    results = tmp_path / "results"
    assert launch(checkout, results).returncode == 0
    layout = Layout(results)
    planned, journals = read_plan(layout.plan), layout.journal_paths()
    add_field(checkout, "METHOD = 99")
    again = launch(checkout, results)
    assert again.returncode == 0, again.stderr
    assert read_plan(layout.plan) == planned
    assert layout.journal_paths() == journals
    more = launch(checkout, results, "seeds=[0,1]")
    assert more.returncode != 0
    assert "full_history: its rules changed, method 1 -> 99" in more.stderr


def test_a_field_added_without_a_pin_is_refused_and_nothing_runs_twice(checkout, tmp_path):
    results = tmp_path / "results"
    assert launch(checkout, results).returncode == 0
    planned = read_plan(Layout(results).plan)
    add_field(checkout, "polish: Science[int] = 0")
    again = launch(checkout, results)
    assert again.returncode != 0
    assert "other ids" in again.stderr
    assert "without a pin" in again.stderr
    assert read_plan(Layout(results).plan) == planned
