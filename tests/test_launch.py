"""The main job as a user meets it: one command, killed at will, always the same result.

"The same result" (docs/methods.md, Which record counts): equal run ids, failure classes, patches,
steps, input tokens and grades, every planned run exactly once, whatever was killed on the way.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.benchmarks.harbor.tasks import task_folders, task_row
from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.host.process import ProcessIdentity, is_alive, process_identity
from pipeline.host.proctable import all_processes
from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from pipeline.records.states import run_states
from tests.benchmarks.harbor_tasks import write_tasks
from tests.words import words_of

SMALL = ["+sweep=demo", "instances.sample=3", "seeds=[0]", "~arms.no_plan", "~arms.sham_cleanup"]
SLOW = ["model.sim.latency_ms=15"]
NO_REPORT = "analyze=false"
COMPARED = ("run_id", "failure_class", "patch_sha256", "n_steps", "input_tokens")


def command(results, *overrides):
    line = words_of(*SMALL, f"results={results}", NO_REPORT, *overrides)
    return [sys.executable, "-m", "pipeline.launch", *line]


def launch(results, *overrides, timeout_s=240.0):
    return subprocess.run(
        command(results, *overrides),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@contextmanager
def signals_as_in_a_terminal():
    """What is started meanwhile does not inherit that nohup, say, has us ignore these."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def started(results, *overrides):
    """A launch in a session of its own, ended with the test."""
    with signals_as_in_a_terminal():
        process = subprocess.Popen(
            command(results, *overrides),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def result_of(results):
    """What must not depend on kills: runs and grades as tables of the compared columns."""
    layout = Layout(Path(results))
    runs = pq.read_table(layout.table_file("runs")).to_pylist()
    grades = {g["run_id"]: g["resolved"] for g in pq.read_table(layout.table("grades")).to_pylist()}
    rows = [(*(run[name] for name in COMPARED), grades[run["run_id"]]) for run in runs]
    assert sorted(run["run_id"] for run in runs) == sorted(
        run.run_id for run in read_plan(layout.plan)
    )
    return sorted(rows)


def until(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.02)


def n_finished(results):
    with suppress(FileNotFoundError):
        return len(run_states(Layout(Path(results))))
    return 0


def family(pid):
    """The identities of every living process in the sessions that descend from `pid`."""
    table = all_processes()
    children = {}
    for stat in table:
        children.setdefault(stat.ppid, []).append(stat)
    found, todo = [], [pid]
    while todo:
        for stat in children.get(todo.pop(), []):
            found.append(ProcessIdentity(stat.pid, stat.start_ticks))
            todo.append(stat.pid)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a launch that nobody touched."""
    results = tmp_path_factory.mktemp("undisturbed") / "results"
    done = launch(results, "analyze=true")
    assert done.returncode == 0, done.stderr
    return results, done


def test_one_command_runs_grades_and_prints_the_paired_table(undisturbed):
    results, done = undisturbed
    assert "plan_prune" in done.stdout
    assert "SIMULATION" in done.stdout
    assert f"{results}/report/report.html" in done.stdout
    assert (results / "report" / "report.html").stat().st_size > 10_000
    assert len(result_of(results)) == 6


def test_a_second_launch_finds_everything_done_and_runs_nothing(undisturbed):
    results, _ = undisturbed
    journals = sorted(Layout(results).journal_paths())
    before = result_of(results)
    again = launch(results)
    assert again.returncode == 0, again.stderr
    assert "(resumed)" in again.stdout
    assert sorted(Layout(results).journal_paths()) == journals
    assert result_of(results) == before


def test_two_folders_of_one_sweep_hold_the_same_result(undisturbed, tmp_path):
    assert launch(tmp_path / "elsewhere").returncode == 0
    assert result_of(tmp_path / "elsewhere") == result_of(undisturbed[0])


def test_ctrl_c_keeps_what_is_finished_and_the_next_launch_goes_on(undisturbed, tmp_path):
    results = tmp_path / "results"
    with started(results, *SLOW) as process:
        until(lambda: n_finished(results) >= 1)
        children = family(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Launch again to resume" in output
    assert not [child for child in children if is_alive(child)]
    kept = n_finished(results)
    assert kept >= 1
    assert launch(results).returncode == 0
    assert result_of(results) == result_of(undisturbed[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_launcher_and_a_closed_terminal_stop_the_workers_like_ctrl_c(tmp_path, number):
    results = tmp_path / "results"
    with started(results, *SLOW) as process:
        until(lambda: n_finished(results) >= 1)
        children = family(process.pid)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Launch again to resume" in output
    assert not [child for child in children if is_alive(child)]


@pytest.mark.parametrize("after_runs", [0, 2])
def test_a_launcher_killed_outright_leaves_workers_that_stop_and_a_folder_that_resumes(
    undisturbed, tmp_path, after_runs
):
    results = tmp_path / "results"
    with started(results, *SLOW) as process:
        until(lambda: n_finished(results) >= after_runs and len(family(process.pid)) >= 2)
        children = family(process.pid)
        process.kill()
    again = launch(results)
    assert again.returncode == 0, again.stderr
    assert result_of(results) == result_of(undisturbed[0])
    until(lambda: not [child for child in children if is_alive(child)], timeout_s=30)


def test_a_worker_killed_outright_is_replaced_within_the_same_launch(undisturbed, tmp_path):
    results = tmp_path / "results"
    layout = Layout(results)
    with started(results, *SLOW) as process:
        until(lambda: n_finished(results) >= 1 and list(layout.status.glob("*.json")))
        worker = next(layout.status.glob("*.json"))
        pid = int(worker.stem.rpartition("pid")[2])
        assert process_identity(pid) is not None
        os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert result_of(results) == result_of(undisturbed[0])


def test_a_second_launcher_is_refused_while_the_first_runs(tmp_path):
    results = tmp_path / "results"
    with started(results, *SLOW) as process:
        until(lambda: n_finished(results) >= 1)
        second = launch(results)
        assert second.returncode == 2
        assert "is running on" in second.stderr
        assert "pipeline.status" in second.stderr
        process.communicate(timeout=240)
    assert process.returncode == 0


def test_a_run_that_keeps_failing_on_our_side_is_named_with_its_cause_and_done_later(tmp_path):
    results = tmp_path / "results"
    one = ["instances.sample=1", "~arms.plan_prune", "max_attempts=1"]
    stuck = launch(results, *one, "model.sim.faults={http500: 1.0}")
    assert stuck.returncode == 2
    assert "1 run could not be finished" in stuck.stderr
    assert "infra_server: " in stuck.stderr
    (state,) = run_states(Layout(results)).values()
    assert (state.infra_attempts, state.to_run, state.resolved) == (1, True, None)
    assert launch(results, *one).returncode == 0
    assert len(result_of(results)) == 1


def test_what_ended_the_workers_before_their_first_run_is_said(tmp_path):
    stuck = launch(
        tmp_path / "results",
        *("instances.sample=1", "~arms.plan_prune", "max_attempts=1"),
        *("+arm@arms.v1=swe_pruner", "arms.v1.policy.url=http://127.0.0.1:1"),
    )
    assert stuck.returncode == 2
    assert "no worker reached it" in stuck.stderr
    assert "a worker ended with: the line pruner of arm" in stuck.stderr
    assert "no SWE-Pruner server answers at http://127.0.0.1:1" in stuck.stderr


def test_a_changed_science_field_is_refused_and_nothing_is_touched(undisturbed):
    results, _ = undisturbed
    lock = (results / "sweep.lock.yaml").read_bytes()
    refused = launch(results, "agent.step_limit=9")
    assert refused.returncode == 2
    assert "agents.mini.step_limit: 250 -> 9" in refused.stderr
    assert (results / "sweep.lock.yaml").read_bytes() == lock


def test_a_dry_run_writes_nothing(tmp_path):
    shown = launch(tmp_path / "results", "dry_run=true")
    assert shown.returncode == 0
    assert "6 runs in 3 blocks" in shown.stdout
    assert "of results" in shown.stdout
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("sweep", "benchmark", "n_arms"),
    [("full500", "lite", 4), ("full500", "multilingual", 4), ("deepswe", "deepswe", 2)],
)
def test_a_dry_run_plans_every_benchmark_that_comes_with_a_config(
    tmp_path, sweep, benchmark, n_arms
):
    dataset = tmp_path / "rows.jsonl"
    rows = toy_rows()[:3]
    if benchmark == "multilingual":
        rows = [{**row, "version": None, "log_parser": "parse_log_gotest"} for row in rows]
    if benchmark == "deepswe":
        rows = [task_row(f) for f in task_folders(write_tasks(tmp_path / "tasks"))][1:]
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"+sweep={sweep}", f"benchmark={benchmark}", f"dataset={dataset}", "cluster=local"]
    words += [f"results={tmp_path / 'results'}", "dry_run=true", "seeds=[0]"]
    argv = [sys.executable, "-m", "pipeline.launch", *words]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stderr
    assert f"{3 * n_arms} runs in 3 blocks" in shown.stdout
    assert "images: 0 staged" in shown.stdout
    assert "GPU-hours" in shown.stdout


def test_gold_patches_can_be_graded_before_anything_is_submitted(tmp_path):
    results = tmp_path / "results"
    locked = launch(results, "submit=false")
    assert locked.returncode == 0, locked.stderr
    assert "grade" in locked.stdout
    assert "--gold" in locked.stdout
    gold = [sys.executable, "-m", "pipeline.grade", str(results), "--gold"]
    done = subprocess.run(gold, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 resolved here" in done.stdout
    assert not Layout(results).journal_paths()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["instances.ids=[toy__ledgre-1]"], "toy__ledger-1"),
        (["model=smi"], "Did you mean sim"),
        (["dataset=/nowhere/rows.json"], "/nowhere/rows.json"),
        (["agent.step_limt=3"], "step_limit"),
    ],
)
def test_a_mistake_exits_non_zero_and_says_what_to_write(tmp_path, overrides, says):
    refused = launch(tmp_path / "results", *overrides)
    assert refused.returncode == 2
    assert says in refused.stderr
    assert not (tmp_path / "results").exists()
