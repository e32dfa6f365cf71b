"""The border of a run: whatever breaks on our side becomes a failure class, never a result."""

import errno
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.pruners.pool import PrunerPool
from pipeline.records.failure import DiskError, FailureClass, NodeError, SandboxError, ServerError
from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock, read_rows
from pipeline.records.plan import PlannedRun, read_plan
from pipeline.serving.tokens import SimTokens
from pipeline.worker.busy import BusyMeter
from pipeline.worker.execute import WorkerContext, execute_run, failure_class_of, request_identity
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from pipeline.worker.servers import Place, RunningEndpoint, start_server
from tests.worker.conftest import launched


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerContext]:
    root = tmp_path_factory.mktemp("context") / "sweep"
    layout = launched(root, "agent.step_limit=30")
    lock = read_lock(layout.lock)
    model, rows = lock.spec.models["sim"], read_rows(layout.dataset)
    place = Place(
        log=layout.log("server"), env={}, node="here", scratch=None, should_stop=lambda: False
    )
    server = start_server(model, place, rows)
    yield WorkerContext(
        lock=lock,
        rows=rows,
        model=model,
        server=server,
        sandboxes=OpenSandboxes(sandbox_factory(lock.spec, trusted=True)),
        meter=BusyMeter(),
        counter=SimTokens(),
        worker="w",
        node="here",
        now=time.time,
        should_stop=lambda: False,
        pruners=PrunerPool(()),
    )
    server.stop()


@pytest.fixture(scope="module")
def planned(context: WorkerContext) -> dict[str, PlannedRun]:
    """By arm, on one instance."""
    runs = read_plan(Layout(Path(context.lock.spec.results)).plan)
    return {run.arm: run for run in runs if run.instance_id == "toy__ledger-1"}


def test_a_run_becomes_a_whole_record(context: WorkerContext, planned) -> None:
    record = execute_run(planned["plan_prune"], 1, context)
    assert record.failure_class is FailureClass.LIMIT_STEPS
    assert record.attempt == 1
    assert record.evidence == "sim"
    assert record.limit_patch
    assert record.gpu_s == 0.0
    assert record.versions == context.lock.versions
    assert len([c for c in record.calls if c.kind == "step"]) == 30


def test_with_token_ids_the_account_is_the_servers_own_to_the_block(
    context: WorkerContext, planned
) -> None:
    context = replace(context, model=replace(context.model, return_token_ids=True))
    record = execute_run(planned["plan_prune"], 8, context)
    assert [c.lcp_block_tokens for c in record.calls] == [c.cached_tokens for c in record.calls]
    assert any(c.rebilled_tokens for c in record.calls)
    for call in record.calls:
        assert call.lcp_tokens + call.new_tokens + call.rebilled_tokens == call.prompt_tokens


def test_each_prompt_divides_into_cached_new_and_billed_again(
    context: WorkerContext, planned
) -> None:
    # An attempt of its own: its cache is cold, as in a sweep.
    record = execute_run(planned["plan_prune"], 7, context)
    for call in record.calls:
        assert call.lcp_tokens + call.new_tokens + call.rebilled_tokens == call.prompt_tokens
    # The simulated cache is the block-quantised account, but for the scaling of offline counts.
    counted = sum(call.lcp_block_tokens for call in record.calls)
    served = sum(call.cached_tokens for call in record.calls)
    assert counted == pytest.approx(served, rel=0.005)
    assert sum(call.rebilled_tokens for call in record.calls) > 0


def test_nothing_is_billed_again_where_nothing_is_pruned(context: WorkerContext, planned) -> None:
    record = execute_run(planned["full_history"], 1, context)
    assert sum(call.rebilled_tokens for call in record.calls) == 0


def test_a_server_that_is_gone_is_its_failure_and_keeps_what_is_known(
    context: WorkerContext, planned
) -> None:
    class Gone(RunningEndpoint):
        def alive(self) -> bool:
            return False

    record = execute_run(
        planned["full_history"], 2, replace(context, server=Gone("http://127.0.0.1:9/v1"))
    )
    assert record.failure_class is FailureClass.INFRA_SERVER
    assert "ServerError" in record.failure
    assert record.attempt == 2
    assert record.patch_sha256 is None


def test_a_sandbox_that_does_not_start_is_its_failure(context: WorkerContext, planned) -> None:
    rows = {key: {**row, "repo": "elsewhere/x"} for key, row in context.rows.items()}
    record = execute_run(planned["full_history"], 1, replace(context, rows=rows))
    assert record.failure_class is FailureClass.INFRA_SANDBOX
    assert "no toy repository" in record.failure


def test_a_defect_of_ours_is_never_the_agents(context: WorkerContext, planned) -> None:
    record = execute_run(planned["full_history"], 1, replace(context, rows={}))
    assert record.failure_class is FailureClass.INFRA_NODE
    assert "KeyError" in record.failure


def test_a_run_that_is_to_stop_is_given_up_as_infrastructure(
    context: WorkerContext, planned
) -> None:
    record = execute_run(planned["full_history"], 1, replace(context, should_stop=lambda: True))
    assert record.failure_class.is_infra


def test_no_sandbox_stays_open(context: WorkerContext, planned) -> None:
    execute_run(planned["full_history"], 1, replace(context, rows={}))
    root = Path(context.lock.spec.cluster.scratch)
    assert not [p for p in root.rglob("sandbox-*") if p.is_dir()]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServerError("x"), FailureClass.INFRA_SERVER),
        (SandboxError("x"), FailureClass.INFRA_SANDBOX),
        (DiskError("x"), FailureClass.INFRA_DISK),
        (NodeError("x"), FailureClass.INFRA_NODE),
        (OSError(errno.ENOSPC, "x"), FailureClass.INFRA_DISK),
        (OSError(errno.EMFILE, "x"), FailureClass.INFRA_NODE),
        (ZeroDivisionError("x"), FailureClass.INFRA_NODE),
    ],
)
def test_every_error_has_an_infrastructure_class(error: Exception, expected) -> None:
    assert failure_class_of(error) is expected


def test_a_model_other_than_the_simulation_is_refused_where_nothing_confines_it(
    context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pipeline.sandbox.local as local

    monkeypatch.setattr(local, "bubblewrap_works", lambda: False)
    with pytest.raises(SandboxError, match="allow_unsandboxed"):
        sandbox_factory(context.lock.spec, trusted=False)
    assert sandbox_factory(replace(context.lock.spec, allow_unsandboxed=True), trusted=False)
    assert sandbox_factory(context.lock.spec, trusted=True)


def test_containers_want_the_folder_of_images(context: WorkerContext) -> None:
    with pytest.raises(SandboxError, match="images=DIR"):
        sandbox_factory(replace(context.lock.spec, sandbox="apptainer"), trusted=True)


def test_a_run_has_a_salt_of_its_own_and_shares_its_blocks_only_when_asked_to(planned) -> None:
    run = planned["full_history"]
    own = request_identity(run, 2, share_cache=False)
    assert own.cache_salt == f"{run.run_id}.2"
    assert request_identity(run, 2, share_cache=True).cache_salt == run.block_id
    assert (own.seed, own.instance_id) == (run.seed, run.instance_id)
