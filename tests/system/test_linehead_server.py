"""From recorded runs to a served head on a real vLLM: the docs' commands, at tiny scale.

Simulated runs are recorded; a head is trained on the tiny model's states of their outputs, served,
compared with Transformers, and an arm prunes by it. What a random model's head keeps means nothing,
but it must be the same everywhere. The same comparison is made on real weights.
"""

import contextlib
import importlib.util
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pipeline.host.environment import environment
from pipeline.linehead.__main__ import main
from pipeline.records.layout import Layout
from pipeline.serving.server import VllmServer
from tests.system import linehead_site, vllm_site
from tests.system.test_vllm_rollout import launch, rows

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

HELD_OUT = "toy__tabular-1"


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return linehead_site.plugin_path(tmp_path_factory.mktemp("site"))


def linehead(command: str, *words: str) -> str:
    """Run a command of docs/linehead.md, in this process; return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main([command, *words])
    assert status == 0, printed.getvalue()
    return printed.getvalue()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]) -> Path:
    """Return a folder with recorded runs (`results`) and their labels."""
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    torch = importlib.util.find_spec("torch")
    require("torch", torch, remedy="`make pruner CPU=1` brings it")
    folder = tmp_path_factory.mktemp("linehead")
    launch(
        folder / "results",
        "demo",
        30,
        f"instances.ids=[toy__ledger-1,toy__confkit-1,{HELD_OUT}]",
        *("~arms.sham_cleanup", "~arms.no_plan", "~arms.plan_prune"),
    )
    labels = f"out={folder / 'labels.parquet'}"
    linehead("label", f"trajectories=[{folder / 'results'}]", labels, "samples.min_lines=5")
    return folder


def features(labelled: Path, name: str, *words: str) -> Path:
    linehead(
        "features",
        f"labels={labelled / 'labels.parquet'}",
        f"trajectories=[{labelled / 'results'}]",
        f"backbone={vllm_site.model_path('tiny')}",
        f"out={labelled / name}",
        *("stored_dtype=float32", "threads=1", *words),
    )
    return labelled / name


@pytest.fixture(scope="module")
def head(labelled: Path) -> Path:
    """Return a head trained on the labelled runs."""
    found = features(labelled, "features")
    linehead(
        "train",
        *(f"features={found}", f"out={labelled / 'head'}", "threads=1"),
        *(f"split.test_instances=[{HELD_OUT}]", "train.epochs=3", "train.first_lr=0.003"),
    )
    return labelled / "head"


@pytest.fixture(scope="module")
def overrides(head: Path, python_path: str) -> list[str]:
    return linehead_site.sweep_words(head, "Qwen3ForCausalLM", python_path)


@pytest.fixture(scope="module")
def server(overrides: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    yield from served("tiny", overrides, tmp_path_factory.mktemp("vllm"))


def served(name: str, overrides: list[str], folder: Path) -> Iterator[VllmServer]:
    running = VllmServer(
        vllm_site.model(name, *overrides),
        log=folder / "server.log",
        env=environment(),
        node="localhost",
        scratch=folder / "scratch",
    )
    yield running
    running.stop()


def compared(running: VllmServer, name: str, head: Path, python_path: str) -> str:
    return linehead_site.in_vllm(
        *("-m", "pipeline.linehead.serving.compare", running.base_url),
        *("--model", str(vllm_site.model_path(name)), "--head", str(head)),
        *("--name", vllm_site.model(name).request_name, "--tolerance", "1e-3"),
        python_path=python_path,
    )


def test_states_from_a_stock_server_are_those_of_transformers(
    labelled: Path, head: Path, tmp_path: Path
) -> None:
    import torch

    from pipeline.linehead.feature_store import open_store

    with linehead_site.pooling_server("tiny", tmp_path / "server.log") as url:
        found = open_store(features(labelled, "served", "source=vllm", f"base_url={url}"))
    local = open_store(head.parent / "features")
    assert [e.sample_id for e in found.entries] == [e.sample_id for e in local.entries]
    assert len(found.entries) > 30
    for ours, theirs in zip(found.each(found.entries), local.each(local.entries), strict=True):
        torch.testing.assert_close(ours.hidden, theirs.hidden, atol=1e-4, rtol=1e-4)


def test_a_head_is_probed_and_evaluated_on_a_task_that_it_never_saw(head: Path) -> None:
    stored = f"features={head.parent / 'features'}"
    held_out = f"split.test_instances=[{HELD_OUT}]"
    assert HELD_OUT in linehead("probe", stored, f"out={head.parent / 'probe'}", held_out)
    assert (head.parent / "probe" / "probe.svg").exists()
    printed = linehead("eval", stored, f"heads=[{head}]", f"out={head.parent / 'evaluation'}")
    assert f"(test: {HELD_OUT})" in printed
    assert "| head | balanced_focal | yes |" in printed


def test_scores_equal_those_of_transformers_whatever_the_cache_holds(
    server: VllmServer, head: Path, python_path: str
) -> None:
    printed = compared(server, "tiny", head, python_path)
    # Among them prefix hits, a rewritten history and six requests at once.
    assert "rewritten history" in printed
    assert "at once, 5" in printed
    assert "largest difference" in printed


def test_a_question_that_cannot_be_answered_never_fails_the_chat(server: VllmServer) -> None:
    name = vllm_site.model("tiny").request_name
    text = "one\ntwo\nthree\n"
    wanted = {"line_scores": {"texts": ["not in the prompt", text]}}
    reply = linehead_site.chat(server.base_url, name, ["Look.", text], wanted)
    assert reply["choices"][0]["message"]["content"]
    answer = reply["kv_transfer_params"]["line_scores"]
    missing, found = answer["outputs"]
    assert "does not show" in missing["error"]
    assert len(found["begin"]) == 3
    assert answer["n_errors"] == 1
    # The head's time is a share of the step's, and never nothing.
    assert answer["head_ms"] > 0
    for nonsense in ({"line_scores": {"texts": 3}}, {"line_scores": None}, {"other": 1}):
        reply = linehead_site.chat(server.base_url, name, ["Look."], nonsense)
        assert reply["choices"][0]["message"]["content"]


def test_the_arm_prunes_by_the_servers_scores(tmp_path: Path, overrides: list[str]) -> None:
    results = tmp_path / "results"
    launch(
        results,
        "demo",
        12,
        *vllm_site.overrides("tiny"),
        *overrides,
        "+arm@arms.swe_pruner_pro=swe_pruner_pro",
        "arms.swe_pruner_pro.policy.threshold=0.5",
        "arms.swe_pruner_pro.policy.min_chars=200",
        *("~arms.sham_cleanup", "~arms.no_plan", "~arms.plan_prune"),
    )
    runs = {run["arm"]: run for run in rows(results, "runs")}
    assert set(runs) == {"full_history", "swe_pruner_pro"}
    assert not [r for r in runs.values() if str(r["failure_class"]).startswith("infra")]
    calls = [c for c in rows(results, "calls") if c["run_id"] == runs["swe_pruner_pro"]["run_id"]]
    answers = [json.loads(str(c["server_answer"])) for c in calls if c["server_answer"]]
    assert answers
    outputs = [o for a in answers for o in a["answer"]["line_scores"]["outputs"]]
    assert all("error" not in output for output in outputs)
    assert all(0 <= s <= 1 for output in outputs for s in output["scores"])
    assert all(a["answer"]["line_scores"]["head_ms"] > 0 for a in answers)
    # Exact accounting and server agree on every call, with rewritten outputs too.
    assert [c["cached_tokens"] for c in calls] == [c["lcp_block_tokens"] for c in calls]
    edits = ds.dataset(Layout(results).table("calls"), format="parquet").to_table().to_pylist()
    assert any("line_prune" in (c["view_edits"] or "") for c in edits)


def test_engines_in_which_nobody_compared_scores_are_refused_with_the_flag_that_helps(
    python_path: str, require: Callable[..., None]
) -> None:
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    words = linehead_site.engine_words(Path("head"), "Qwen3ForCausalLM")
    plain = {
        "model": str(vllm_site.model_path("tiny")),
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        **{name.replace("-", "_"): value for name, value in words.items()},
    }
    ngram = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}
    cases = {
        "plain": plain,
        "stages": {**plain, "pipeline_parallel_size": 2},
        "graphs": {**plain, "enforce_eager": False},
        "drafts": {**plain, "speculative_config": ngram},
        "no head": {**plain, "kv_transfer_config": None},
    }
    printed = linehead_site.in_vllm(
        "-c", linehead_site.REFUSALS, json.dumps(cases), python_path=python_path
    )
    line = next(line for line in printed.splitlines() if line.startswith("TOLD "))
    told = json.loads(line.removeprefix("TOLD "))
    assert set(told) == {"stages", "graphs", "drafts", "no head"}
    assert "--pipeline-parallel-size 1" in told["stages"]
    assert "--enforce-eager; add that, or" in told["graphs"]
    assert "no speculative decoding" in told["drafts"]
    assert "docs/linehead.md" in told["no head"]


def test_scores_of_a_model_on_two_ranks_equal_those_of_transformers(
    tmp_path: Path, python_path: str, require: Callable[..., None]
) -> None:
    """After its last layer every rank of a tensor-parallel model has the whole hidden state."""
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    head = linehead_site.random_head("tiny", tmp_path / "head", python_path)
    words = linehead_site.sweep_words(
        # One core a rank: vLLM binds ranks to memory nodes otherwise, of which there may be one.
        *(head, "Qwen3ForCausalLM", python_path),
        VLLM_CPU_OMP_THREADS_BIND="0|1",
    )
    for running in served("tiny", [*words, "model.serve.tensor_parallel=2"], tmp_path):
        assert "largest difference" in compared(running, "tiny", head, python_path)


def test_scores_equal_those_of_transformers_on_real_weights(
    tmp_path: Path, python_path: str, require: Callable[..., None]
) -> None:
    require("vllm", vllm_site.found("smollm2"), remedy=vllm_site.REMEDY)
    head = linehead_site.random_head("smollm2", tmp_path / "head", python_path)
    # In float32 a token's keys and values take 46 kB; the window has 8,192 tokens.
    words = linehead_site.sweep_words(head, "LlamaForCausalLM", python_path, cache_mb=512)
    for running in served("smollm2", words, tmp_path):
        assert "largest difference" in compared(running, "smollm2", head, python_path)
