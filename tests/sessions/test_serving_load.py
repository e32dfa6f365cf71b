"""Recorded runs as load: what is sent is what was recorded, and settings are compared on it."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.agent.encoded_view import encoded
from pipeline.compact import compact_folder
from pipeline.launch import launch, main
from pipeline.planning.config import sweep_spec
from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from pipeline.records.rebuild import messages_of_call, recorded_run
from pipeline.records.states import run_states
from pipeline.sessions.serving_load import load_runs
from pipeline.spec.load import LoadSpec, ServingSetting
from pipeline.worker import rollout_job
from tests.worker.conftest import launched

PLAIN = {"default": ServingSetting()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two runs of an arm that edits."""
    layout = launched(tmp_path_factory.mktemp("recorded") / "sweep", "~arms.full_history",
                      "analysis.reference=plan_prune", "agent.step_limit=9")  # fmt: skip
    rollout_job.main(str(layout.root), "sim", 0)
    compact_folder(layout.root)
    return layout


def words(layout: Layout, tmp_path: Path, *more: str) -> list[str]:
    named = [f"load.trajectories={layout.root}", f"results={tmp_path}/serving", "load.runs=4"]
    dropped = ("retention_0", "priority", "slots_8", "slots_32", "prefix_match_16")
    return ["+sweep=serving", "model=sim", *named, *(f"~load.settings.{n}" for n in dropped), *more]


def said(console: Console) -> list[list[str]]:
    return [line.split() for line in console.export_text().splitlines()]


def test_each_call_sends_what_was_recorded_and_asks_for_as_much(recorded: Layout):
    plan = read_plan(recorded.plan)
    load = LoadSpec(settings=PLAIN, trajectories=str(recorded.root), runs=len(plan))
    states = run_states(recorded)
    by_task = {calls[0].messages: calls for calls in load_runs(load)}
    assert len(by_task) == len(plan)
    for run in plan:
        record = recorded_run(recorded, states[run.run_id])
        steps = [index for index, call in enumerate(record.calls) if call.kind == "step"]
        sent = [tuple(map(encoded, messages_of_call(run.run_id, i, recorded))) for i in steps]
        played = by_task[sent[0]]
        assert [call.messages for call in played] == sent
        asked = [record.calls[i].completion_tokens for i in steps]
        assert [call.answer_tokens for call in played] == asked
        assert [call.n_left for call in played] == list(range(len(steps)))[::-1]
        ends = [record.calls[i].message_count for i in steps]
        between = [record.messages[a + 1 : b] for a, b in pairwise(ends)]
        waits = [max((m.waited_s or 0.0 for m in some), default=0.0) for some in between]
        assert [call.wait_s for call in played] == [0.0, *waits]
        assert any(waits)


def test_recordings_come_in_turn_and_may_be_cut(recorded: Layout):
    whole = LoadSpec(settings=PLAIN, trajectories=str(recorded.root), runs=5)
    cut = replace(whole, max_calls=3, max_answer_tokens=2)
    runs, short = load_runs(whole), load_runs(cut)
    assert [run[0].messages for run in runs[:2]] == [run[0].messages for run in runs[2:4]]
    assert runs[4] == runs[0] != runs[1]
    for run, whole_run in zip(short, runs, strict=True):
        assert [call.messages for call in run] == [call.messages for call in whole_run[:3]]
        assert {call.answer_tokens for call in run} == {2}
        assert [call.n_left for call in run] == [2, 1, 0]


def test_settings_are_shown_over_the_first_and_a_refused_one_as_refused(
    recorded: Layout, tmp_path: Path
):
    console = Console(record=True, width=300)
    slots = ("load.settings.default_again.slots=4", "cluster.rollout.concurrency=1")
    slow = ("model.sim.latency_ms=40", "load.pace=0", "load.max_calls=5")
    assert launch(words(recorded, tmp_path, *slots, *slow), console) == 0
    head, columns, first, offload, uncached, again = said(console)
    assert head[:4] == ["4", "runs,", "20", "calls,"]
    assert columns == ["setting", "throughput", "first", "token", "hit", "rate", "preemptions"]
    # The simulation has no streams to time and preempts nothing.
    assert first == ["default", "1.00", "-", "1.00", "0:0"]
    assert float(again[1]) > 1.3, "four runs at once wait beside each other"
    assert again[3] == "1.00"
    for row in (offload, uncached):
        assert row[1:4] == ["refused:", "sim", "is"]


def test_a_dry_run_starts_no_server(recorded: Layout, tmp_path: Path):
    console = Console(record=True, width=300)
    assert launch(words(recorded, tmp_path, "dry_run=true"), console) == 0
    assert len(said(console)) == 1
    assert not (tmp_path / "serving").exists()


NAMED = "load.trajectories=somewhere"
ELSEWHERE = ("model.base_url=http://127.0.0.1:1/v1", "model.served_name=x")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["model=sim"], "load.trajectories=DIR"),
        (["model=sim", NAMED], "there is no somewhere"),
        (["model=sim", NAMED, "cluster=slurm"], "cluster=local"),
        (["model=endpoint", NAMED, *ELSEWHERE], "not ours to start"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_way_out(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["+sweep=serving", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_sweep_that_makes_runs_has_no_load():
    assert sweep_spec(["+sweep=demo"]).load is None
