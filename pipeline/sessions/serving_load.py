"""Recorded runs played against a model's server: what its settings do to agents' load.

Each run sends the prompts that were recorded, waits as long as its commands took, and asks for
answers of the recorded length; what the server says is not read. So all settings get the same
work. A slot plays one run after the other, as a worker's does.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from pipeline.agent.encoded_view import EncodedView
from pipeline.host.environment import environment
from pipeline.plural import plural
from pipeline.protocols import ChatReply, ChatRequest, Completer
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.replaying.replay import Recording
from pipeline.serving.client import completer_for
from pipeline.serving.metrics import metrics_text, sums_of
from pipeline.serving.server_log import error_said
from pipeline.serving.tokens import CharTokens
from pipeline.sessions.recordings import SourceError, recordings, sources
from pipeline.spec.load import LoadSpec, ServingSetting
from pipeline.spec.model import ModelSpec
from pipeline.spec.sweep import SweepSpec
from pipeline.views.shown import idle_s
from pipeline.worker.servers import Place, start_server

_TTFT = "vllm:time_to_first_token_seconds"
_PREEMPTIONS = "vllm:num_preemptions_total"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadCall:
    """One request of a recorded run."""

    messages: tuple[bytes, ...]
    answer_tokens: int
    wait_s: float
    """Since the answer before."""
    n_left: int
    """Calls of the run after this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a server did with the load. What it does not report is None."""

    wall_s: float
    n_calls: int
    n_cut: int
    """Runs that ended where the window was full."""
    prompt_tokens: int
    cached_tokens: int | None
    answer_tokens: int
    ttft_s: float | None
    """Mean over the calls."""
    preemptions: float | None

    @property
    def tokens_per_s(self) -> float:
        """Tokens of answers and of prompts, cached ones included: all settings get the same."""
        return (self.prompt_tokens + self.answer_tokens) / self.wall_s

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompts' tokens that some cache of the server held."""
        return None if self.cached_tokens is None else self.cached_tokens / self.prompt_tokens


def serving_table(spec: SweepSpec, load: LoadSpec) -> Iterator[str]:
    """Yield the lines of the comparison; each setting's comes when it was measured.

    A setting that the server refuses is a line that says so.

    Raises:
        SourceError: nothing to play, or no server of ours to set.
        ServerError: the first setting, which the others are compared with, was refused.
    """
    model = _model_of(spec)
    runs = load_runs(load)
    yield (
        f"{plural(len(runs), 'run')}, {plural(sum(map(len, runs)), 'call')}, waits x {load.pace:g}"
        f"; model {model.name} [{model.evidence}]; ratios to {next(iter(load.settings))}"
    )
    if spec.dry_run:
        return
    width = max(map(len, load.settings))
    yield f"{'setting':{width}}  " + "  ".join(f"{name:>11}" for name in _COLUMNS)
    base: Served | None = None
    for name, setting in load.settings.items():
        log = Path(spec.results) / "logs" / f"{name}.server.log"
        slots = setting.slots or spec.cluster.rollout.concurrency
        try:
            served = served_load(model, setting, runs, slots=slots, pace=load.pace, log=log)
        except ServerError as error:
            if base is None:
                raise
            yield f"{name:{width}}  refused: {error_said(log) or str(error).splitlines()[-1]}"
            continue
        base = base or served
        yield f"{name:{width}}  " + "  ".join(f"{c:>11}" for c in _ratios(served, base))
    if base is not None and base.n_cut:
        yield f"{plural(base.n_cut, 'run')} ended early, where the window of the model was full"


def load_runs(load: LoadSpec) -> list[tuple[LoadCall, ...]]:
    """Return the runs to play, recordings in turn.

    Raises:
        SourceError: nothing is named, or nothing there can be played.
    """
    if load.trajectories is None:
        raise SourceError(
            "name recorded runs: load.trajectories=DIR, a results folder or trajectory files "
            "(docs/trajectories.md)"
        )
    found = [
        calls
        for source in sources([Path(load.trajectories)])
        for recording in recordings(source, CharTokens.name)
        if (calls := _calls_of(recording, load))
    ]
    if not found:
        raise SourceError(f"load.trajectories={load.trajectories} holds no run that made a call")
    return list(islice(cycle(found), load.runs))


def served_load(
    model: ModelSpec,
    setting: ServingSetting,
    runs: Sequence[Sequence[LoadCall]],
    *,
    slots: int,
    pace: float,
    log: Path,
) -> Served:
    """Return what a server of its own does with `runs` under a setting.

    Args:
        model: whose server is started.
        setting: how.
        runs: to play, in order.
        slots: runs at once.
        pace: times the waits.
        log: of the server; one that is there is replaced.

    Raises:
        ServerError: it does not start, or does not answer.
    """
    if setting.flags and model.kind != "vllm":
        raise ServerError(f"{model.name} is a simulation, which takes no words of vLLM's")
    serve = replace(model.serve, flags=(*model.serve.flags, *setting.flags))
    model = replace(model, serve=serve)
    log.unlink(missing_ok=True)
    place = Place(
        log=log, env=environment(), node="localhost", scratch=None, should_stop=lambda: False
    )
    server = start_server(model, place, {})
    try:
        completer = completer_for(model, server.base_url, place.env, server_alive=server.alive)
        # A server's first calls are slow whatever its settings.
        _play(completer, runs[:1], setting, salt="warm", slots=1, pace=0.0)
        before, began_s = sums_of(metrics_text(server.base_url)), time.monotonic()
        replies, n_cut = _play(completer, runs, setting, salt="load", slots=slots, pace=pace)
        wall_s, after = time.monotonic() - began_s, sums_of(metrics_text(server.base_url))
        completer.close()
    finally:
        server.stop()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    n_first, cached = grown.get(f"{_TTFT}_count"), [r.cached_tokens for r in replies]
    return Served(
        wall_s=wall_s,
        n_calls=len(replies),
        n_cut=n_cut,
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        cached_tokens=None if None in cached else sum(n for n in cached if n is not None),
        answer_tokens=sum(reply.completion_tokens for reply in replies),
        ttft_s=grown[f"{_TTFT}_sum"] / n_first if n_first else None,
        preemptions=grown.get(_PREEMPTIONS),
    )


def _play(
    completer: Completer,
    runs: Sequence[Sequence[LoadCall]],
    setting: ServingSetting,
    *,
    salt: str,
    slots: int,
    pace: float,
) -> tuple[list[ChatReply], int]:
    """Return all answers, and how many runs ended where the window was full."""
    over = threading.Event()

    def play(number: int) -> tuple[list[ChatReply], bool]:
        replies: list[ChatReply] = []
        for call in runs[number]:
            if over.wait(call.wait_s * pace):
                break
            try:
                replies.append(completer.complete(_request(call, number, setting, salt)))
            except ContextOverflowError:
                return replies, True
            except ServerError:
                over.set()
                raise
        return replies, False

    with ThreadPoolExecutor(slots) as pool:
        try:
            played = list(pool.map(play, range(len(runs))))
        finally:
            over.set()
    return [r for replies, _ in played for r in replies], sum(is_cut for _, is_cut in played)


def _request(call: LoadCall, number: int, setting: ServingSetting, salt: str) -> ChatRequest:
    extra = {"ignore_eos": True, "structured_outputs": None}
    return ChatRequest(
        messages=call.messages,
        seed=number,
        max_tokens=call.answer_tokens,
        # Recordings that come again are other runs: none lives on another one's cache.
        cache_salt=f"{salt}-{number}",
        extra={**extra, "priority": call.n_left} if setting.priority else extra,
    )


def _model_of(spec: SweepSpec) -> ModelSpec:
    if len(spec.models) > 1 or spec.cluster.kind != "local":
        raise SourceError(
            "one model's server is measured on this machine: model=NAME cluster=local, in an "
            "allocation of the node that it needs"
        )
    (model,) = spec.models.values()
    if model.kind == "endpoint":
        raise SourceError(f"{model.name} is not ours to start with other settings")
    return model


def _calls_of(recording: Recording, load: LoadSpec) -> tuple[LoadCall, ...]:
    """Return the calls of a recording with what each sent."""
    view, calls = EncodedView(CharTokens()), []
    recorded = recording.calls[: load.max_calls]
    for number, call in enumerate(recorded, start=1):
        for message in recording.trajectory.messages[
            len(view.trajectory.messages) : call.n_messages
        ]:
            view.append(message)
        view.apply(call.edits)
        answer_tokens = call.completion_tokens or 1
        calls.append(
            LoadCall(
                messages=tuple(view.sent()),
                answer_tokens=min(answer_tokens, load.max_answer_tokens or answer_tokens),
                wait_s=idle_s(view.trajectory) or 0.0,
                n_left=len(recorded) - number,
            )
        )
    return tuple(calls)


_COLUMNS: Mapping[str, Callable[[Served], float | None]] = {
    "throughput": lambda served: served.tokens_per_s,
    "first token": lambda served: served.ttft_s,
    "hit rate": lambda served: served.hit_rate,
    "preemptions": lambda served: served.preemptions,
}


def _ratios(served: Served, base: Served) -> Iterator[str]:
    """Yield each column over that of the first setting: `3:0` where that is none, `-` unknown."""
    for of in _COLUMNS.values():
        own, other = of(served), of(base)
        if own is None or other is None:
            yield "-"
        else:
            yield f"{own / other:.2f}" if other else f"{own:g}:0"
