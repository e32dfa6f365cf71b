"""A vLLM server that splices, and an agent's history that is edited while it grows."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.host.environment import environment
from pipeline.protocols import ChatReply, ChatRequest
from pipeline.serving.client import HttpCompleter
from pipeline.serving.command import vllm_argv
from pipeline.serving.server import VllmServer
from pipeline.serving.splice.client import SplicedCompleter, SpliceRule
from pipeline.spec.model import ModelSpec
from tests.system import vllm_site


def model(name: str, *overrides: str, cache_mb: int = 512) -> ModelSpec:
    """Return a shipped model, in float32, whose server splices."""
    return vllm_site.model(
        name,
        "model.serve.dtype=float32",
        "model.serve.splice_store_gib=1",
        f"model.serve.flags=[--kv-cache-memory-bytes,'{cache_mb << 20}']",
        # One thread that does not spin: elsewhere on a shared machine others wait for the cores.
        f"model.serve.env={{PYTHONPATH: '{vllm_site.CHECKOUT}', OMP_NUM_THREADS: '1',"
        " OMP_WAIT_POLICY: PASSIVE, VLLM_CPU_OMP_THREADS_BIND: nobind}",
        *overrides,
    )


def with_connector(spec: ModelSpec, name: str, module: str) -> ModelSpec:
    """Return the model with another connector in its server."""
    (settings,) = (
        json.loads(word) for word in vllm_argv(spec, port=1) if "SpliceConnector" in word
    )
    other = settings | {"kv_connector": name, "kv_connector_module_path": module}
    flags = (*spec.serve.flags, "--kv-transfer-config", json.dumps(other))
    return replace(spec, serve=replace(spec.serve, splice_store_gib=None, flags=flags))


@contextmanager
def served(spec: ModelSpec, folder: Path) -> Iterator[VllmServer]:
    """Yield a running server of `spec`."""
    folder.mkdir(parents=True, exist_ok=True)
    running = VllmServer(
        spec,
        log=folder / "server.log",
        env=environment(),
        node="localhost",
        scratch=folder / "scratch",
    )
    try:
        yield running
    finally:
        running.stop()


def splicing(spec: ModelSpec, server: VllmServer, run: str, **rule: int) -> SplicedCompleter:
    """Return one run's client."""
    chat = HttpCompleter(spec, server.base_url)
    return SplicedCompleter(
        chat, server.base_url, spec.request_name, run=run, rule=SpliceRule(**rule)
    )


def request(messages: Sequence[dict[str, Any]], salt: str, **changes: Any) -> ChatRequest:
    """Return a request whose answer is decided by the model alone, and greedily."""
    fields: dict[str, Any] = {
        "messages": [json.dumps(message).encode() for message in messages],
        "seed": 1,
        "temperature": 0.0,
        "max_tokens": 8,
        "cache_salt": salt,
        "extra": {"structured_outputs": None, "top_p": 1.0, "seed": None},
    }
    return ChatRequest(**(fields | changes))


def output(turn: int, n_lines: int = 8) -> str:
    """Return an output that is like no other."""
    return "".join(
        f"src/module_{turn}/file_{i}.py:{i * 7 + turn}: def f_{turn}_{i}(value):\n"
        for i in range(n_lines)
    )


def history(n_turns: int, masked: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return a conversation in text mode; the outputs of the turns in `masked` are omitted."""
    messages = [
        {"role": "system", "content": "You repair programs. Answer with one command."},
        {"role": "user", "content": "The total of the cart is wrong. Find out why and mend it."},
    ]
    for turn in range(n_turns):
        messages.append(
            {
                "role": "assistant",
                "content": f"I look at part {turn}.\n$ grep -n def src/module_{turn}/*.py",
            }
        )
        text = "[Earlier command output omitted.]" if turn in masked else output(turn)
        messages.append({"role": "user", "content": text})
    return messages


def work(reply: ChatReply) -> tuple[int | None, int | None, int | None]:
    """Return the tokens reused, rotated and computed."""
    return reply.reused_tokens, reply.rotated_tokens, reply.recomputed_tokens
