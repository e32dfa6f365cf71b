"""All line pruners in one sweep, from launch to tables, with stand-in models."""

import json
import subprocess
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.records.layout import Layout
from tests.linehead.extra import need_torch
from tests.pruners.prune_server import PruneServer

need_torch()

from tests.pruners.stand_ins import language_model, reranker, token_classifier  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PRUNERS = {"llmlingua2", "selective_context", "longcodezip", "rag", "swe_pruner"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    root = tmp_path_factory.mktemp("sweep")
    lm = language_model(root / "lm", positions=512)
    with PruneServer() as server:
        overrides = [
            *("+sweep=line_pruners", "~arms.self_prune", f"results={root / 'run'}"),
            *("instances.ids=[toy__ledger-1]", "agent.step_limit=12", "analyze=false"),
            f"arms.llmlingua2.policy.path={token_classifier(root / 'classifier')}",
            f"arms.rag.policy.path={reranker(root / 'reranker')}",
            *("arms.rag.policy.window_lines=8", "arms.rag.policy.overlap_lines=2"),
            f"arms.selective_context.policy.path={lm}",
            *(f"arms.longcodezip.policy.path={lm}", "arms.longcodezip.policy.dtype=float32"),
            f"arms.swe_pruner.policy.url={server.url}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.launch", *overrides],
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return Layout(root / "run")


def rows(layout: Layout, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(layout.table(table)).to_pylist())


def test_every_arm_acted_without_a_failure_and_its_time_is_on_record(layout: Layout) -> None:
    runs = {run["arm"]: run for run in rows(layout, "runs")}
    assert set(runs) == {*PRUNERS, "full_history"}
    for arm in PRUNERS:
        run = runs[arm]
        treatment = json.loads(run["extra"])["treatment"]
        assert treatment["verdict"] == "treated"
        assert treatment["edits"]["line_prune"] == run["n_pruned"] > 0
        assert run["n_pruner_errors"] == treatment["n_pruner_errors"] == 0
        assert run["pruner_s"] > 0
    assert runs["full_history"]["pruner_s"] is None


def test_prompts_are_smaller_than_the_whole_history_while_the_agent_did_the_same(
    layout: Layout,
) -> None:
    runs = {run["arm"]: run["run_id"] for run in rows(layout, "runs")}
    prompts: dict[str, dict[int, int]] = {run_id: {} for run_id in runs.values()}
    for call in rows(layout, "calls"):
        prompts[call["run_id"]][call["step_index"]] = call["prompt_tokens"]
    commands: dict[str, dict[int, list[str]]] = {run_id: {} for run_id in runs.values()}
    for message in rows(layout, "messages"):
        if message["tool"]:
            did = commands[message["run_id"]].setdefault(message["step_index"], [])
            did.append(message["command"])
    full = runs["full_history"]
    for arm in PRUNERS:
        own = runs[arm]
        same = 1
        while commands[own].get(same) == commands[full].get(same) is not None:
            same += 1
        assert same > 2
        steps = range(1, min(same, len(prompts[own])) + 1)
        assert sum(prompts[own][s] for s in steps) < sum(prompts[full][s] for s in steps)


def test_removed_lines_are_counted_in_what_the_model_was_shown(layout: Layout) -> None:
    shown = [m["replaced_by"] for m in rows(layout, "messages") if m["prune_reason"]]
    assert shown
    assert all("(filtered " in text and text.startswith("<returncode>") for text in shown)
