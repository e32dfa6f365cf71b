"""Runs that begin with another run of their block: what they share, and what is their own."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.forks import fork_problems
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun, read_plan
from pipeline.records.rebuild import recorded_run
from pipeline.records.rows import run_row
from pipeline.records.run_record import RunRecord
from pipeline.records.states import run_states
from pipeline.shell.volatile import stable
from pipeline.worker import rollout_job
from pipeline.worker.execute import WorkerContext, execute_run
from tests.worker.conftest import SHORT, MakeSweep, StartWorker, launched
from tests.worker.test_faults import (
    assert_nothing_left,
    in_flight,
    journaled_runs,
    servers_of,
    wait_for,
)

ARMS = ("~arms.plan_prune", "+arm@arms.mask=observation_mask", "+arm@arms.dedup=dedup")
ACTING = (*ARMS, "arms.mask.policy.keep_last_turns=3")
IDLE = (*ARMS, "arms.mask.policy.keep_last_turns=200")
FORK = "fork=true"
ONE = "instances.ids=[toy__ledger-1]"


def records_of(layout: Layout) -> dict[tuple[str, str], RunRecord]:
    """Every run by instance and arm."""
    states = run_states(layout)
    return {
        (run.instance_id, run.arm): recorded_run(layout, states[run.run_id])
        for run in read_plan(layout.plan)
    }


def what_happened(record: RunRecord) -> object:
    """All that must not depend on whether a beginning was shared."""
    calls = [
        (c.kind, c.step_index, c.message_count, c.edits, c.request_seed, c.max_tokens,
         c.prompt_tokens, c.completion_tokens, c.finish_reason, c.error, c.reply)
        for c in record.calls
    ]  # fmt: skip
    messages = [(m.role, m.command, m.returncode, stable(m.content)) for m in record.messages]
    return (
        record.failure_class, record.patch, record.limit_patch, record.loop,
        record.template_dropped_tokens, record.plan_events, calls, messages,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Layout]:
    """The same sweep, fresh and forked."""
    made = {}
    for name, more in (("fresh", ()), ("forked", (FORK,))):
        made[name] = launched(tmp_path_factory.mktemp(name) / "sweep", *ACTING, *more)
        rollout_job.main(str(made[name].root), "sim", 0)
    return made


def test_a_forked_run_is_the_run_that_it_would_have_been_by_itself(sweeps) -> None:
    fresh, forked = records_of(sweeps["fresh"]), records_of(sweeps["forked"])
    assert fresh.keys() == forked.keys()
    for place, record in forked.items():
        assert what_happened(record) == what_happened(fresh[place]), place
    assert {fresh[p].run_id for p in fresh if p[1] != "full_history"}.isdisjoint(
        record.run_id for record in forked.values()
    )


def test_a_forked_run_says_what_it_shares_and_makes_only_the_other_calls(sweeps) -> None:
    records = records_of(sweeps["forked"])
    for (instance_id, arm), record in records.items():
        base = records[instance_id, "full_history"]
        row = run_row(record)
        if arm == "full_history":
            assert record.forked_from is None
            assert row["shared_input_tokens"] is None
            continue
        assert (record.forked_from, record.fork_difference) == (base.run_id, None)
        at = record.forked_at_call
        assert at is not None
        first_edit = next((i for i, c in enumerate(record.calls) if own_edits(c)), len(base.calls))
        assert at == first_edit
        assert row["shared_input_tokens"] == sum(c.prompt_tokens for c in base.calls[:at])
        assert row["input_tokens"] == sum(c.prompt_tokens for c in record.calls)
        assert [c.started_at for c in record.calls[:at]] == [c.started_at for c in base.calls[:at]]
    assert any(0 < (r.forked_at_call or 0) < len(r.calls) for r in records.values())


def own_edits(call) -> bool:
    return any(edit.reason != "elide" for edit in call.edits)


def test_an_arm_that_never_acts_takes_the_outcome_without_a_call(make_sweep: MakeSweep) -> None:
    layout = make_sweep(*IDLE, "~arms.dedup", FORK)
    rollout_job.main(str(layout.root), "sim", 0)
    records = records_of(layout)
    for instance_id in {place[0] for place in records}:
        mask, base = records[instance_id, "mask"], records[instance_id, "full_history"]
        assert mask.forked_at_call == len(base.calls)
        assert (mask.patch, mask.calls, mask.wall_s) == (base.patch, base.calls, base.wall_s)
        assert mask.gpu_s is None
        assert mask.extra["treatment"]["verdict"] == "not_triggered"


def test_a_command_that_does_something_else_again_makes_the_run_fresh(
    make_sweep: MakeSweep, sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The simulated agent runs no command that differs: its outputs are taken for ones that do.
    numbers = iter(range(10**6))
    monkeypatch.setattr(
        "pipeline.agent.shared_prefix.stable", lambda output: f"{output}{next(numbers)}"
    )
    layout = make_sweep(*ACTING, FORK)
    rollout_job.main(str(layout.root), "sim", 0)
    fresh = records_of(sweeps["fresh"])
    for place, record in records_of(layout).items():
        assert what_happened(record) == what_happened(fresh[place])
        assert record.forked_from is None
        if place[1] == "mask":
            assert "gave another output again" in (record.fork_difference or "")
            assert run_row(record)["shared_input_tokens"] is None


def test_a_worker_killed_in_mid_fork_loses_and_doubles_nothing(
    make_sweep: MakeSweep, start_worker: StartWorker, sweeps
) -> None:
    layout = make_sweep(*ACTING, FORK, "model.sim.latency_ms=60", "cluster.rollout.concurrency=1")
    worker = start_worker(layout)
    sibling = {r.run_id for r in read_plan(layout.plan) if r.arm != "full_history"}
    wait_for(lambda: bool(sibling & set(in_flight(layout))), "a forked run was in flight", worker)
    servers = servers_of(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    for server in servers:
        server.wait(timeout=20)
    rollout_job.main(str(layout.root), "sim", 9)
    assert sorted(journaled_runs(layout)) == sorted(r.run_id for r in read_plan(layout.plan))
    undisturbed = records_of(sweeps["forked"])
    for place, record in records_of(layout).items():
        assert what_happened(record) == what_happened(undisturbed[place])
        assert record.forked_at_call == undisturbed[place].forked_at_call
        assert (
            run_row(record)["shared_input_tokens"]
            == run_row(undisturbed[place])["shared_input_tokens"]
        )
    assert_nothing_left(layout)


def test_an_arm_that_acts_at_its_first_call_ran_fresh(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No arm edits the task itself: its first request is taken for another one.
    monkeypatch.setattr("pipeline.agent.shared_prefix.SharedPrefix._is_of", lambda *_: False)
    layout = make_sweep(*ACTING, "~arms.dedup", FORK, SHORT, ONE)
    rollout_job.main(str(layout.root), "sim", 0)
    record = records_of(layout)["toy__ledger-1", "mask"]
    assert (record.forked_from, record.forked_at_call, record.fork_difference) == (None,) * 3
    assert run_row(record)["shared_input_tokens"] is None
    assert record.calls[0].cached_tokens == 0
    assert record.gpu_s is not None


def test_runs_whose_beginning_has_no_result_run_fresh_and_say_so(
    make_sweep: MakeSweep, sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(planned: PlannedRun, attempt: int, context: WorkerContext) -> RunRecord:
        rows = {} if planned.arm == "full_history" else context.rows
        return execute_run(planned, attempt, replace(context, rows=rows))

    layout = make_sweep(*ACTING, FORK, ONE, "max_attempts=1")
    plan = {run.arm: run.run_id for run in read_plan(layout.plan)}
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.worker.rollout_worker.execute_run", broken)
        rollout_job.main(str(layout.root), "sim", 0)
    states = run_states(layout)
    assert {arm for arm, run_id in plan.items() if states[run_id].to_run} == {"full_history"}
    rollout_job.main(str(layout.root), "sim", 1)
    fresh = records_of(sweeps["fresh"])
    for (instance_id, arm), record in records_of(layout).items():
        assert what_happened(record) == what_happened(fresh[instance_id, arm])
        assert record.forked_from is None
        missing = f"{plan['full_history']} has no result to begin with"
        assert record.fork_difference == (None if arm == "full_history" else missing)
    assert len(journaled_runs(layout)) == len(plan) + 1, "each once, and the failure"


def test_each_seed_begins_with_the_run_of_that_seed(make_sweep: MakeSweep) -> None:
    layout = make_sweep(*ACTING, FORK, SHORT, ONE, "seeds=[0,1]", "arms.dedup.seeds=[1]")
    rollout_job.main(str(layout.root), "sim", 0)
    states, plan = run_states(layout), read_plan(layout.plan)
    base = {run.seed: run.run_id for run in plan if run.arm == "full_history"}
    forked = [run for run in plan if run.arm != "full_history"]
    assert sorted((run.arm, run.seed) for run in forked) == [("dedup", 1), ("mask", 0), ("mask", 1)]
    for run in forked:
        assert recorded_run(layout, states[run.run_id]).forked_from == base[run.seed]


def test_the_run_that_others_begin_with_comes_first_in_its_block(make_sweep: MakeSweep) -> None:
    layout = make_sweep(*ARMS, FORK, "max_block_runs=2")
    blocks: dict[str, list[str]] = {}
    for run in read_plan(layout.plan):
        blocks.setdefault(run.instance_id, []).append(run.arm)
    assert {arms[0] for arms in blocks.values()} == {"full_history"}
    rollout_job.main(str(layout.root), "sim", 0)
    assert all(
        record.forked_from for (_, arm), record in records_of(layout).items() if arm == "dedup"
    )


def test_arms_with_other_tools_fork_from_one_that_has_the_same() -> None:
    demo = ("+sweep=demo", FORK)
    said = {p.field: p.message for p in fork_problems(sweep_spec(list(demo)))}
    assert said.keys() == {"fork_from.plan_prune", "fork_from.sham_cleanup", "fork_from.no_plan"}
    assert "fork_from.plan_prune=sham_cleanup" in said["fork_from.plan_prune"]
    words = ("+fork_from.plan_prune=sham_cleanup", "+fork_from.no_plan=no_plan")
    spec = sweep_spec([*demo, *words])
    assert not list(fork_problems(spec))
    assert {arm: spec.fork_source(arm) for arm in spec.arms} == {
        "full_history": None, "sham_cleanup": None, "no_plan": None, "plan_prune": "sham_cleanup",
    }  # fmt: skip


def test_forking_changes_the_ids_of_the_runs_that_fork_and_of_no_other(tmp_path: Path) -> None:
    ids = [
        {r.arm: r.run_id for r in read_plan(launched(tmp_path / name, *ARMS, *more).plan)}
        for name, more in (("a", ()), ("b", (FORK,)))
    ]
    assert ids[0]["full_history"] == ids[1]["full_history"]
    assert ids[0]["mask"] != ids[1]["mask"]


@pytest.mark.parametrize(
    ("words", "forked"),
    [
        (
            ("+arm@arms.sham=sham_cleanup", "+fork_from.plan_prune=sham"),
            "plan_prune",
        ),
        ((*ACTING, "~arms.dedup", "agent=trae"), "mask"),
    ],
    ids=["from an arm that asks", "another scaffold"],
)
def test_forked_runs_are_the_same_by_themselves_with_other_tools(
    make_sweep: MakeSweep, words: tuple[str, ...], forked: str
) -> None:
    base = ("+fork_from.sham=sham",) if "sham" in words[0] else ()
    fresh, fork = make_sweep(*words, ONE, name="a"), make_sweep(*words, ONE, *base, FORK, name="b")
    for layout in (fresh, fork):
        rollout_job.main(str(layout.root), "sim", 0)
    expected = records_of(fresh)
    for place, record in records_of(fork).items():
        assert what_happened(record) == what_happened(expected[place]), place
        assert (record.forked_from is not None) == (place[1] == forked)
    record = records_of(fork)["toy__ledger-1", forked]
    assert 0 < (record.forked_at_call or 0) < len(record.calls)
