"""Edits after edits through a real vLLM server that splices: what it saves, and what may go wrong.

Real weights (SmolLM2) in float32. A server whose cache is small and whose steps are short serves
most tests, so that prompts are chunked and requests pre-empted.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.protocols import ChatReply
from pipeline.serving.client import HttpCompleter
from pipeline.serving.connections import fetch
from pipeline.serving.metrics import metrics_text
from pipeline.serving.server import VllmServer
from pipeline.spec.model import ModelSpec
from tests.system import splice_site, vllm_site
from tests.system.splice_site import history, request, splicing, work
from tests.system.test_vllm_rollout import launch, rows

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TURNS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (2, ()), (3, ()), (4, (0,)), (5, (0, 1)), (5, (0, 1, 3)),
)  # fmt: skip
"""Turns of a run's history, and which outputs are omitted by then: some steps, some edits."""
WINDOW = 1600


@pytest.fixture(scope="module")
def model(require: Callable[..., None]) -> ModelSpec:
    require("vllm", vllm_site.found("smollm2"), remedy=vllm_site.REMEDY)
    return splice_site.model(
        "smollm2",
        f"model.context_length={WINDOW}",
        "model.serve.max_num_batched_tokens=256",
        cache_mb=76,
    )


@pytest.fixture(scope="module")
def server(model: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with splice_site.served(model, tmp_path_factory.mktemp("splice")) as running:
        yield running


def whole_run(
    completer: Any, name: str, turns: Sequence[Any] = TURNS, **more: Any
) -> list[ChatReply]:
    """Return the answers of a run whose history grows and is edited."""
    return [completer.complete(request(history(n, cut), name, **more)) for n, cut in turns]


def ask_store(server: VllmServer, model: ModelSpec, run: str, *, end: bool = False) -> Any:
    """Return what the server's store says to a prompt of two tokens."""
    params = {"splice": {"run": run, "end": end}}
    body = {"model": model.request_name, "prompt": [1, 2], "max_tokens": 1}
    data = json.dumps({**body, "kv_transfer_params": params}).encode()
    answer = json.loads(fetch(f"{server.base_url}/completions", body=data, timeout_s=300))
    return answer.get("kv_transfer_params")


def stored_tokens(server: VllmServer, model: ModelSpec) -> int:
    """Return how many tokens the server's store holds."""
    n_tokens = int(ask_store(server, model, "question")["splice"]["stored"])
    ask_store(server, model, "question", end=True)
    return n_tokens


@pytest.fixture(scope="module")
def alone(model: ModelSpec, server: VllmServer) -> list[ChatReply]:
    """Return what a run gets that has the server to itself."""
    completer = splicing(model, server, "alone")
    replies = whole_run(completer, "alone")
    completer.close()
    return replies


def test_text_behind_an_edit_moves_and_is_not_computed(
    alone: list[ChatReply], model: ModelSpec, server: VllmServer
) -> None:
    assert all(sum(map(int, work(r))) == r.prompt_tokens for r in alone)  # type: ignore[arg-type]
    assert [bool(r.rotated_tokens) for r in alone] == [False, False, True, True, True]
    plain = HttpCompleter(model, server.base_url)
    unspliced = whole_run(plain, "plain")
    for (_, cut), ours, theirs in zip(TURNS, alone, unspliced, strict=True):
        assert theirs.cached_tokens is not None
        if cut:
            computed = ours.recomputed_tokens or 0
            assert computed < 0.5 * (theirs.prompt_tokens - theirs.cached_tokens)


def test_where_nothing_was_edited_answers_are_those_without_splicing(
    alone: list[ChatReply], model: ModelSpec, server: VllmServer
) -> None:
    plain = whole_run(HttpCompleter(model, server.base_url), "unedited", TURNS[:2])
    assert [r.content for r in plain] == [r.content for r in alone[:2]]


def test_four_runs_at_once_get_what_each_gets_alone(
    alone: list[ChatReply], model: ModelSpec, server: VllmServer
) -> None:
    def one(n: int) -> list[ChatReply]:
        completer = splicing(model, server, f"at once {n}")
        replies = whole_run(completer, f"at once {n}")
        completer.close()
        return replies

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(one, range(4)))
    for replies in runs:
        assert [r.content for r in replies] == [r.content for r in alone]
        assert [r.rotated_tokens for r in replies][2:] == [r.rotated_tokens for r in alone][2:]


def test_a_run_that_is_preempted_while_it_answers_says_the_same(
    model: ModelSpec, server: VllmServer
) -> None:
    """Two prompts fit the cache, and their answers do not."""
    extra = {"structured_outputs": None, "seed": None, "ignore_eos": True, "min_tokens": 90}

    def one(name: str, meet: Barrier) -> str:
        completer = splicing(model, server, name)
        whole_run(completer, name, TURNS[:3], max_tokens=4)
        meet.wait()
        asked = request(history(5, (0, 1)), name, max_tokens=90, extra=extra)
        reply = completer.complete(asked)
        completer.close()
        assert reply.rotated_tokens
        return reply.content

    quiet = one("quiet", Barrier(1))
    before, meet = n_preempted(server), Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        crowded = list(pool.map(lambda n: one(f"crowded {n}", meet), range(3)))
    assert n_preempted(server) > before
    assert crowded == [quiet] * 3


def n_preempted(server: VllmServer) -> float:
    lines = metrics_text(server.base_url).splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith("vllm:num_preemptions_total"))


def test_repair_computes_more_and_a_refresh_computes_everything(
    alone: list[ChatReply], model: ModelSpec, server: VllmServer
) -> None:
    repaired = splicing(model, server, "repaired", repair_tokens=64)
    refreshed = splicing(model, server, "refreshed", refresh_edits=1)
    for spliced, fixed in zip(alone, whole_run(repaired, "a"), strict=True):
        if spliced.rotated_tokens:
            assert (fixed.recomputed_tokens or 0) >= (spliced.recomputed_tokens or 0) + 64
    repaired.close()
    fresh_run = whole_run(refreshed, "b")
    refreshed.close()
    # The first edit is spliced, the second computed in full, the third spliced again.
    assert [bool(r.rotated_tokens) for r in fresh_run] == [False, False, True, False, True]
    plain = whole_run(HttpCompleter(model, server.base_url), "d")
    assert fresh_run[3].recomputed_tokens == plain[3].prompt_tokens
    assert fresh_run[3].content == plain[3].content


def test_a_run_that_ends_leaves_nothing_behind(model: ModelSpec, server: VllmServer) -> None:
    held = stored_tokens(server, model)
    completer = splicing(model, server, "short")
    (reply,) = whole_run(completer, "short", TURNS[:1])
    assert stored_tokens(server, model) >= held + reply.prompt_tokens
    completer.close()
    assert stored_tokens(server, model) == held


def test_a_server_that_forgot_a_run_computes_and_then_splices_again(
    alone: list[ChatReply], model: ModelSpec, server: VllmServer
) -> None:
    completer = splicing(model, server, "forgotten")
    whole_run(completer, "forgotten", TURNS[:3])
    ask_store(server, model, "forgotten.0", end=True)
    replies = whole_run(completer, "forgotten", TURNS[3:])
    completer.close()
    assert [r.rotated_tokens for r in replies] == [0, alone[4].rotated_tokens]


def test_a_load_that_fails_is_computed_and_the_run_goes_on(
    alone: list[ChatReply], model: ModelSpec, tmp_path: Path
) -> None:
    failing = splice_site.with_connector(
        model, "FailingSpliceConnector", "tests.system.failing_splice"
    )
    with splice_site.served(failing, tmp_path / "failing") as server:
        completer = splicing(failing, server, "failing")
        replies = whole_run(completer, "failing")
        completer.close()
        plain = whole_run(HttpCompleter(failing, server.base_url), "plain")
    assert "a load that fails" in (tmp_path / "failing" / "server.log").read_text()
    assert [r.prompt_tokens for r in replies] == [r.prompt_tokens for r in alone]
    # What was computed instead is exact again.
    assert [r.content for r in replies[:2]] == [r.content for r in plain[:2]]
    assert all(r.content for r in replies)


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_keys_of_the_first_layer_are_those_computed_at_their_new_place(
    name: str, tmp_path: Path, require: Callable[..., None]
) -> None:
    """Deeper layers differ, since the text had read what was cut (docs/splice.md)."""
    require("vllm", vllm_site.found(name), remedy=vllm_site.REMEDY)
    out = tmp_path / "rows.jsonl"
    script = str(vllm_site.CHECKOUT / "benchmarks" / "splice_quality.py")
    words = (script, str(vllm_site.model_path(name)), "--part", "check", "--out", str(out))
    env = {
        **environment(), "PYTHONPATH": str(vllm_site.CHECKOUT), "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip
    done = run_command([str(vllm_site.python()), *words], timeout_s=1200, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.text
    rotated, unmoved = map(json.loads, out.read_text().splitlines())
    assert rotated["rotated"] > 100
    assert rotated["layer0_key_max"] <= 1e-4 * rotated["key_scale"]
    assert rotated["layer0_value_max"] == 0
    assert unmoved["layer0_key_max"] > 0.1 * unmoved["key_scale"]
    assert rotated["kl"] < 0.1


def test_a_sweep_keeps_what_the_splicing_arm_reused_beside_one_that_does_not(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    results = tmp_path / "results"
    launch(
        results,
        "demo",
        14,
        *vllm_site.overrides("tiny"),
        "model.serve.splice_store_gib=1",
        f"model.serve.env={{PYTHONPATH: '{vllm_site.CHECKOUT}'}}",
        *("~arms.sham_cleanup", "~arms.no_plan", "~arms.plan_prune"),
        *("+arm@arms.mask=observation_mask", "arms.mask.policy.keep_last_turns=3"),
        *("+arm@arms.spliced=observation_mask", "arms.spliced.policy.keep_last_turns=3"),
        "arms.spliced.cache=splice",
    )
    runs = {run["arm"]: run for run in rows(results, "runs")}
    assert not [r for r in runs.values() if str(r["failure_class"]).startswith("infra")]
    kinds = ("reused_tokens", "rotated_tokens", "recomputed_tokens")
    assert [runs["mask"][kind] for kind in kinds] == [None] * 3
    told = [int(str(runs["spliced"][kind])) for kind in kinds]
    assert sum(told) == runs["spliced"]["input_tokens"]
    assert told[1] > 0
    report = (results / "report" / "report.html").read_text()
    assert "<code>cache: splice</code>" in report
