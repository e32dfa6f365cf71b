"""A server that refuses every run stops the worker once, and no run of it counts as tried."""

from dataclasses import replace

import pytest
from rich.console import Console

from pipeline.planning.display import status_view
from pipeline.planning.progress import progress_of, stopped_workers
from pipeline.records.failure import FailureClass
from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.states import States, run_states
from pipeline.serving.finding import ServerUnfitError
from pipeline.worker import rollout_job
from pipeline.worker.refusals import Refusals, RefusedInARowError
from tests.fakes import Message, Reply, ScriptedModel, bash, call, says
from tests.records.samples import run_record
from tests.worker.conftest import MakeSweep


def refused(run_id: str, *answered: str, kind: str = "step") -> RunRecord:
    """Return a run whose calls were answered and then refused at its last, of `kind`."""
    calls = [CallRecord(step_index=1, kind=k, message_count=2, prompt_tokens=9) for k in answered]
    return replace(
        run_record(),
        run_id=run_id,
        exit_status="RequestRefusedError",
        failure_class=FailureClass.INFRA_SERVER,
        failure="Traceback ...\nRequestRefusedError: no such field",
        calls=(*calls, CallRecord(step_index=1, kind=kind, message_count=2, error="no such field")),
    )


def done(run_id: str, *answered: str) -> RunRecord:
    calls = [CallRecord(step_index=1, kind=k, message_count=2, prompt_tokens=9) for k in answered]
    return replace(run_record(), run_id=run_id, exit_status="Submitted", calls=tuple(calls))


def test_so_many_refusals_in_a_row_stop_the_worker_and_are_dropped():
    refusals = Refusals(3)
    assert refusals.take(refused("a")) == []
    assert refusals.take(refused("b")) == []
    with pytest.raises(RefusedInARowError, match=r"3 runs in a row .*step call.*no such field"):
        refusals.take(refused("c"))
    assert refusals.rest() == []


def test_a_run_that_is_answered_shows_that_the_others_failed_on_their_own():
    refusals = Refusals(3)
    first, second = refused("a"), done("b", "step")
    refusals.take(first)
    assert refusals.take(second) == [first, second]
    assert refusals.take(refused("c")) == []
    assert refusals.take(refused("d")) == []


def test_cleanups_are_counted_apart_from_the_steps_that_go_on_being_answered():
    refusals = Refusals(2)
    assert refusals.take(refused("a", "step", kind="cleanup")) == []
    assert len(refusals.take(done("b", "step"))) == 1
    with pytest.raises(RefusedInARowError, match="cleanup"):
        refusals.take(refused("c", "step", kind="cleanup"))


def test_a_refusal_after_answers_of_its_kind_is_that_runs_own():
    refusals = Refusals(2)
    for name in "abcd":
        record = refused(name, "step")
        assert refusals.take(record) == [record]


def test_what_is_held_back_when_the_work_ends_goes_on_record():
    refusals = Refusals(5)
    held = refused("a")
    refusals.take(held)
    assert refusals.rest() == [held]
    assert refusals.rest() == []


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo diff"


# --- the worker ----------------------------------------------------------------------------------
class Moody:
    """A server that suits the check before the first run, and then refuses whatever is asked."""

    def __init__(self) -> None:
        self.refuses = True
        self.n_refused = 0

    def __call__(self, body: Message) -> Reply:
        is_check = "work in a shell, one command" in body["messages"][0]["content"]
        usage = {"prompt_tokens": len(str(body["messages"]))}
        if is_check:
            return says("", call("prune_observations", ids=[]), usage=usage)
        if self.refuses:
            self.n_refused += 1
            return says(status=400, body=b"the key has expired")
        return says("", bash(SUBMIT), usage=usage)


def endpoint(make_sweep: MakeSweep, server: ScriptedModel, *words: str) -> Layout:
    return make_sweep(
        "model=endpoint",
        f'model.base_url="{server.base_url}"',
        "model.served_name=scripted",
        "allow_unsandboxed=true",
        *words,
    )


def text_of_status(layout: Layout) -> str:
    console = Console(width=500)
    with console.capture() as captured:
        console.print(status_view(progress_of(layout, read_plan(layout.plan), States(layout))))
    return captured.get()


def test_a_worker_stops_after_five_refusals_and_the_next_one_finds_nothing_tried(
    make_sweep: MakeSweep,
) -> None:
    script = Moody()
    with ScriptedModel(script) as server:
        layout = endpoint(make_sweep, server)
        with pytest.raises(RefusedInARowError, match="the key has expired"):
            rollout_job.main(str(layout.root), "endpoint", 0)
        assert 5 <= script.n_refused <= 8  # those that were in flight
        assert run_states(layout) == {}
        assert "5 runs in a row" in text_of_status(layout)
        script.refuses = False
        rollout_job.main(str(layout.root), "endpoint", 0)
    states = run_states(layout)
    assert {state.infra_attempts for state in states.values()} == {0}
    assert not any(state.to_run for state in states.values())
    assert stopped_workers(layout) == []


def test_a_server_with_a_smaller_window_is_given_no_run(make_sweep: MakeSweep) -> None:
    script = Moody()
    with ScriptedModel(script, about={"max_model_len": 9000}) as server:
        layout = endpoint(make_sweep, server)
        with pytest.raises(ServerUnfitError, match=r"model\.context_length=9000"):
            rollout_job.main(str(layout.root), "endpoint", 0)
        assert server.requests == []
    assert run_states(layout) == {}
    (left,) = stopped_workers(layout)
    assert left["unfit"]
