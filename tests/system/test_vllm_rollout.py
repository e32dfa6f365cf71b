"""Whole runs on a real vLLM: the tiny model through launch, worker, agent, sandbox and grading."""

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.host.proctable import all_processes
from pipeline.records.layout import Layout
from tests.system import vllm_site
from tests.words import words_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def launch(results: Path, sweep: str, n_steps: int, *overrides: str) -> str:
    words = words_of(
        *(f"+sweep={sweep}", f"results={results}", "seeds=[0]", f"agent.step_limit={n_steps}"),
        *("instances.ids=[toy__ledger-1]", f"cluster.scratch={results.parent / 'scratch'}"),
        *overrides,
    )
    argv = [sys.executable, "-m", "pipeline.launch", *words]
    done = run_command(argv, timeout_s=800, env=environment(), cwd=vllm_site.CHECKOUT)
    assert done.returncode == 0, done.text
    return done.text


def rows(results: Path, table: str) -> list[dict[str, object]]:
    return ds.dataset(Layout(results).table(table), format="parquet").to_table().to_pylist()


def test_the_tiny_model_runs_the_toy_benchmark_to_the_report(
    tmp_path: Path, require: Callable[..., None]
):
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    results = tmp_path / "results"
    arms = ("~arms.sham_cleanup", "~arms.no_plan")
    launch(results, "demo", 12, *vllm_site.overrides("tiny"), *arms)

    runs = rows(results, "runs")
    assert {run["arm"] for run in runs} == {"full_history", "plan_prune"}
    assert {run["evidence"] for run in runs} == {"live"}
    assert {run["token_counter"] for run in runs} == {"served:tiny"}
    assert not [run for run in runs if str(run["failure_class"]).startswith("infra")]
    assert all(run["gpu_s"] == 0.0 for run in runs)

    calls = rows(results, "calls")
    steps = [call for call in calls if call["kind"] == "step"]
    assert len(steps) > len(runs)
    # Exact accounting and server agree on every call, arms and cleanups included.
    assert [c["cached_tokens"] for c in calls] == [c["lcp_block_tokens"] for c in calls]
    assert rows(results, "server")
    assert rows(results, "grades")
    assert (results / "report" / "report.html").exists()
    assert not [p for p in all_processes() if str(results) in _command(p.pid)]


def test_the_demo_runs_on_real_weights(tmp_path: Path, require: Callable[..., None]):
    require("vllm", vllm_site.found("smollm2"), remedy=vllm_site.REMEDY)
    results = tmp_path / "results"
    launch(results, "demo_smollm2", 4, *vllm_site.overrides("smollm2"))

    runs = rows(results, "runs")
    assert {run["arm"] for run in runs} == {"full_history", "observation_mask"}
    assert {run["evidence"] for run in runs} == {"live"}
    assert not [run for run in runs if str(run["failure_class"]).startswith("infra")]
    calls = rows(results, "calls")
    assert [c["cached_tokens"] for c in calls] == [c["lcp_block_tokens"] for c in calls]
    commands = [m["command"] for m in rows(results, "messages") if m["role"] == "user"]
    assert any(commands)
    assert (results / "report" / "report.html").exists()


def test_ten_steps_of_the_second_scaffold_run_on_real_weights(
    tmp_path: Path, require: Callable[..., None]
):
    require("vllm", vllm_site.found("smollm2"), remedy=vllm_site.REMEDY)
    results = tmp_path / "results"
    served = [*vllm_site.overrides("smollm2"), "model=smollm2_tools", "agent=trae"]
    launch(results, "demo_smollm2", 10, *served[1:])

    runs = rows(results, "runs")
    assert {(run["agent"], run["model"], run["evidence"]) for run in runs} == {
        ("trae", "smollm2_tools", "live")
    }
    # It never says that it is done: the limit ends it.
    assert {(run["failure_class"], run["n_steps"]) for run in runs} == {("limit_steps", 10)}
    calls = rows(results, "calls")
    assert [c["cached_tokens"] for c in calls] == [c["lcp_block_tokens"] for c in calls]
    used = {m["tool"] for m in rows(results, "messages") if m["role"] == "tool"}
    assert used <= {"bash", "str_replace_based_edit_tool", "sequentialthinking"}
    assert used
    assert (results / "report" / "report.html").exists()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
