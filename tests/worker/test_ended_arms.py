"""An arm that was ended: no worker begins its runs, and nothing waits for them."""

import subprocess
import sys

import pytest

from pipeline.drain import main as drain
from pipeline.planning.folder import FolderError
from pipeline.planning.history import history_of
from pipeline.planning.progress import progress_of
from pipeline.records.ended_arms import ended_arms
from pipeline.records.plan import read_plan
from pipeline.records.states import Progress, States, run_states
from pipeline.worker import rollout_job
from tests.worker.conftest import SHORT, MakeSweep, launched


def test_an_ended_arm_is_left_out_and_the_others_go_on(make_sweep: MakeSweep) -> None:
    layout = make_sweep(SHORT)
    assert drain([str(layout.root), "--arm", "plan_prune"]) == 0
    rollout_job.main(str(layout.root), "sim", 0)
    plan, states = read_plan(layout.plan), run_states(layout)
    made = {run.arm for run in plan if states[run.run_id].has_result}
    assert made == {"full_history"}
    assert {states[r.run_id].progress for r in plan if r.arm == "plan_prune"} == {Progress.ENDED}
    assert history_of(layout, plan, states).todo == []
    progress = progress_of(layout, plan, States(layout))
    assert progress.all_run
    assert (progress.planned, progress.ended_arms) == (2, {"plan_prune": 2})


def test_an_ended_arm_that_is_taken_up_again_is_finished(make_sweep: MakeSweep) -> None:
    layout = make_sweep(SHORT)
    assert drain([str(layout.root), "--arm", "plan_prune"]) == 0
    rollout_job.main(str(layout.root), "sim", 0)
    for note in layout.ended_arms.iterdir():
        note.unlink()
    rollout_job.main(str(layout.root), "sim", 1)
    states = run_states(layout)
    assert all(states[run.run_id].has_result for run in read_plan(layout.plan))


def test_an_arm_that_others_fork_from_ends_after_them(
    make_sweep: MakeSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    forked = ("+arm@arms.sham=sham_cleanup", "+fork_from.plan_prune=sham", "+fork_from.sham=sham")
    layout = make_sweep(SHORT, *forked, "fork=true")
    assert drain([str(layout.root), "--arm", "sham"]) == 2
    why = "plan_prune is compared with, matched to or forked from sham; end that first"
    assert why in capsys.readouterr().err
    assert drain([str(layout.root), "--arm", "plan_prune"]) == 0
    assert drain([str(layout.root), "--arm", "sham"]) == 0


def test_when_all_arms_are_ended_the_reference_is_ended_too_and_nothing_is_open(
    make_sweep: MakeSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = make_sweep(SHORT)
    assert drain([str(layout.root), "--arm", "plan_prune"]) == 0
    assert f"drain {layout.root} --arm full_history" in capsys.readouterr().out
    assert drain([str(layout.root), "--arm", "full_history"]) == 0
    assert "nothing is left" not in capsys.readouterr().out
    rollout_job.main(str(layout.root), "sim", 0)
    assert not any(state.has_result for state in run_states(layout).values())
    assert progress_of(layout, read_plan(layout.plan), States(layout)).all_run


KILLED_DRAIN = """
import os, signal, sys
from pipeline.host import files
files.os.link = lambda *_: os.kill(os.getpid(), signal.SIGINT)
from pipeline.drain import main
main(sys.argv[1:])
"""
"""Interrupted when the note is written and has not got its name yet."""


def test_a_drain_that_was_interrupted_ended_nothing_and_can_be_repeated(
    make_sweep: MakeSweep,
) -> None:
    layout = make_sweep(SHORT)
    words = [str(layout.root), "--arm", "plan_prune"]
    interrupted = subprocess.run(
        [sys.executable, "-c", KILLED_DRAIN, *words], check=False, stderr=-1
    )
    assert b"KeyboardInterrupt" in interrupted.stderr
    assert ended_arms(layout) == {}
    assert drain(words) == 0
    assert list(ended_arms(layout)) == ["plan_prune"]


@pytest.mark.parametrize(
    "more", ["instances.ids=[toy__ledger-1,toy__tabular-1,toy__tabular-2]", "seeds=[0,1]"]
)
def test_a_sweep_with_looks_does_not_grow(make_sweep: MakeSweep, more: str) -> None:
    looks = "analysis.looks=[0.5,1.0]"
    layout = make_sweep(looks)
    layout.submissions.joinpath("1.json").write_text("{}")
    launched(layout.root, looks)
    with pytest.raises(FolderError, match="looks or seeds are planned"):
        launched(layout.root, looks, more)
