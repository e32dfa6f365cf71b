"""A benchmark whose repositories lie elsewhere than /testbed: from the prompt to the grade."""

import time
from functools import partial
from pathlib import Path

from pipeline.benchmarks.registry import format_of
from pipeline.grading.evaluation import EvalSite
from pipeline.pruners.pool import PrunerPool
from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock, read_rows
from pipeline.records.plan import read_plan
from pipeline.serving.tokens import SimTokens
from pipeline.worker.busy import BusyMeter
from pipeline.worker.execute import WorkerContext, execute_run
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from pipeline.worker.servers import Place, start_server
from tests.worker.conftest import launched


def test_the_toy_at_app_is_worked_on_and_graded_at_app(tmp_path: Path) -> None:
    layout = launched(tmp_path / "sweep", "benchmark.workdir=/app")
    lock, rows = read_lock(layout.lock), read_rows(layout.dataset)
    usual = read_plan(Layout(launched(tmp_path / "usual").root).plan)
    runs = read_plan(layout.plan)
    assert {run.run_id for run in runs}.isdisjoint(run.run_id for run in usual)
    planned = next(r for r in runs if r.arm == "plan_prune")
    place = Place(
        log=layout.log("server"), env={}, node="here", scratch=None, should_stop=lambda: False
    )
    sandboxes = OpenSandboxes(sandbox_factory(lock.spec, trusted=True))
    server = start_server(lock.spec.models["sim"], place, rows)
    try:
        context = WorkerContext(
            lock=lock,
            rows=rows,
            model=lock.spec.models["sim"],
            server=server,
            sandboxes=sandboxes,
            meter=BusyMeter(),
            counter=SimTokens(),
            worker="w",
            node="here",
            now=time.time,
            should_stop=lambda: False,
            pruners=PrunerPool(()),
        )
        record = execute_run(planned, 1, context)
    finally:
        server.stop()
    assert record.failure_class is FailureClass.OK
    assert "in the repository at /app." in record.messages[1].content
    assert not any("/testbed" in message.content for message in record.messages)
    row, grader = rows[planned.instance_id], format_of(lock.spec.benchmark).grader
    start = partial(sandboxes.start, row, "grade")
    grade = grader.grade(row, grader.gold(row, start), start, EvalSite(), timeout_s=120)
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output
    assert "cd /app" in grade.test_output
