"""What a line head costs in generation wall time: recorded runs replayed with and without it.

    python -m benchmarks.linehead_replay HEAD TRAJECTORIES... [--model FOLDER] [--python PYTHON]
        [--architecture LlamaForCausalLM] [--runs 16] [--steps 6] [--tokens 32]

Two real vLLM servers of the same model stand side by side, one with the head; every run goes to
both, in turn first. A call's prompt is the recorded history; as many tokens are generated as the
recorded answer had, at most `--tokens`, and the outputs that are new in a prompt are scored, as the
arm does it. Prints wall time, the servers' processor time, the head's own time by the server's
account, and the bytes that scores add to an answer. The paper's figure for the like is 15%.
"""

import argparse
import json
import math
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path

import psutil

from pipeline.host.environment import environment
from pipeline.linehead.prompts import template_message
from pipeline.linehead.sources import recorded_runs
from pipeline.planning.config import sweep_spec
from pipeline.serving.server import VllmServer
from pipeline.views.line_scores import FIELD, LineScores, decoded, request_params

MIN_CHARS = 500
"""Shorter outputs are not asked about; the arm's default."""


@dataclass
class Totals:
    """What one server took for all runs."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    head_s: float = 0.0
    n_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    scored_outputs: int = 0
    scored_tokens: int = 0
    score_bytes: int = 0
    answer_bytes: int = 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("head", type=Path)
    parser.add_argument("trajectories", type=Path, nargs="+")
    parser.add_argument("--model", type=Path, default=Path(".cache/models/smollm2"))
    parser.add_argument("--python", default=".venv-vllm/bin/python")
    parser.add_argument("--architecture", default="LlamaForCausalLM")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6, help="calls a run")
    parser.add_argument("--tokens", type=int, default=32, help="generated a call at most")
    parser.add_argument("--work", type=Path, default=Path("results/linehead_replay"))
    options = parser.parse_args()
    # One of every source in turn, so that no source fills all places.
    sources = [recorded_runs([path]) for path in options.trajectories]
    runs = [r for r in chain.from_iterable(zip_longest(*sources)) if r is not None]
    runs = list(islice(runs, options.runs))
    print(f"{len(runs)} runs: {', '.join(sorted({r.source for r in runs}))}")
    options.work.mkdir(parents=True, exist_ok=True)
    servers = {name: started(options, name) for name in ("off", "on")}
    try:
        totals = {name: Totals() for name in servers}
        for server in servers.values():
            replayed(server, runs[0], options, Totals(), salt="warm-up")
        for place, run in enumerate(runs):
            for name in ("off", "on") if place % 2 == 0 else ("on", "off"):
                before = cpu_s(servers[name])
                replayed(servers[name], run, options, totals[name], salt=f"run-{place}")
                totals[name].cpu_s += cpu_s(servers[name]) - before
            print(f"{run.run_id}: {told(totals)}", flush=True)
    finally:
        for server in servers.values():
            server.stop()
    report(totals)


def report(totals):
    off, on = totals["off"], totals["on"]
    print(
        f"{on.n_calls} calls a server, {on.prompt_tokens} prompt tokens ({on.cached_tokens} of "
        f"them cached), {on.completion_tokens} generated; {on.scored_outputs} outputs scored"
    )
    for name, without, with_head in (
        ("wall", off.wall_s, on.wall_s),
        ("CPU", off.cpu_s, on.cpu_s),
    ):
        more = with_head / without - 1
        print(f"{name}: {without:.1f} s without, {with_head:.1f} s with: {more:+.1%}")
    print(f"head by the server's account: {on.head_s:.2f} s, {on.head_s / on.wall_s:.1%} of wall")
    print(
        f"scores: {on.score_bytes / max(1, on.scored_tokens):.1f} bytes a token, "
        f"{on.score_bytes / max(1, on.n_calls):.0f} an answer"
    )


def told(totals):
    return ", ".join(
        f"{name} {t.wall_s:.1f} s ({t.cpu_s:.1f} CPU, {t.head_s:.2f} head)"
        for name, t in totals.items()
    )


def started(options, name):
    flags = [
        *("--no-enable-chunked-prefill", "--kv-cache-memory-bytes", str(1 << 29)),
        *("--dtype", "float32", "--enable-prompt-tokens-details"),
    ]
    if name == "on":
        transfer = {
            "kv_connector": "LineScoreConnector",
            "kv_connector_module_path": "pipeline.linehead.serving.connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"head": str(options.head.resolve())},
        }
        overrides = {"architectures": [f"LineHead{options.architecture}"]}
        flags += ["--hf-overrides", json.dumps(overrides)]
        flags += ["--kv-transfer-config", json.dumps(transfer)]
    quoted = ",".join(f"'{flag}'" for flag in flags)
    words = [
        *("+sweep=demo", "model=smollm2", f"model.serve.python={Path(options.python).absolute()}"),
        f"model.serve.model_path={options.model.resolve()}",
        f"model.serve.flags=[{quoted}]",
        "model.serve.dtype=float32",
        # One thread: threads that wait for each other on a busy machine would count as work.
        "model.serve.env={OMP_NUM_THREADS: '1', VLLM_CPU_OMP_THREADS_BIND: nobind}",
    ]
    (model,) = sweep_spec(words).models.values()
    log = options.work / f"{name}.log"
    return VllmServer(model, log=log, env=environment(), node="localhost")


def replayed(server, run, options, totals, *, salt):
    """Send a run's first calls, whose prompts fit the window, to a server."""
    messages = run.trajectory.messages
    n_calls = 0
    for place, message in enumerate(messages):
        if message.role != "assistant" or n_calls == options.steps:
            continue
        n_calls += 1
        before = messages[:place]
        new = [m.content for m in before[last_answer(before) + 1 :] if m.is_prunable]
        texts = [t for t in new if len(t) >= MIN_CHARS]
        # The server accounts for the head where it is asked: so every call asks something.
        asked = texts or [before[-1].content]
        body = {
            "model": "smollm2",
            "messages": [template_message(m, calls_as_text=True) for m in before],
            "max_tokens": max(2, min(options.tokens, len(message.content) // 3)),
            "ignore_eos": True,
            "temperature": 0,
            "cache_salt": salt,
            "kv_transfer_params": request_params(asked),
        }
        reply = sent(server, body, totals)
        if reply is None:
            return
        note(reply, asked if texts else [], totals)


def last_answer(messages):
    return max((m.index for m in messages if m.role == "assistant"), default=len(messages))


def sent(server, body, totals):
    """Return the answer, or None where the prompt does not fit the window."""
    request = urllib.request.Request(
        f"{server.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    started_at = time.monotonic()
    try:
        with opener.open(request, timeout=600) as response:
            data = response.read()
    except urllib.error.HTTPError as error:
        if error.code != 400 or b"context length" not in error.read():
            raise
        return None
    totals.wall_s += time.monotonic() - started_at
    totals.answer_bytes += len(data)
    totals.n_calls += 1
    return json.loads(data)


def note(reply, texts, totals):
    usage = reply["usage"]
    totals.prompt_tokens += usage["prompt_tokens"]
    totals.completion_tokens += usage["completion_tokens"]
    details = usage.get("prompt_tokens_details") or {}
    totals.cached_tokens += details.get("cached_tokens") or 0
    params = reply.get("kv_transfer_params") or {}
    if FIELD not in params:
        return
    head_ms = params[FIELD]["head_ms"]
    totals.head_s += math.nan if head_ms is None else head_ms / 1000
    if texts:
        totals.score_bytes += len(json.dumps(params))
    for found in decoded(params, texts) if texts else ():
        if isinstance(found, LineScores):
            totals.scored_outputs += 1
            totals.scored_tokens += len(found.scores)
        else:
            print(f"not scored: {found}")


def cpu_s(server):
    """Return the processor time of a server's processes so far."""
    total = 0.0
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == server.session:
                times = process.cpu_times()
                total += times.user + times.system
        except (psutil.Error, OSError):
            continue
    return total


if __name__ == "__main__":
    main()
