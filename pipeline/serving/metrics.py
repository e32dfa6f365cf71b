"""What a model server says of itself at `/metrics`, and what a worker concludes from it.

Owns reading vLLM's Prometheus text (the simulated server speaks it too) into `ServerSample`, and
the rule by which another run may be started. GPUs are `gpu`'s; who samples, and where it is kept,
is the worker's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.host.proxies import Proxy
from pipeline.records.failure import ServerError
from pipeline.records.grade_record import ServerSample
from pipeline.serving.connections import fetch

_LINE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_COUNTS = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
}
_KV_USAGE = "vllm:kv_cache_usage_perc"
_CACHE_CONFIG = "vllm:cache_config_info"

MAX_KV_USAGE = 0.85
"""Above this share of the KV cache in use another run would have runs evicted as they grow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One line of the text."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics_of(text: str) -> list[Metric]:
    """Return the samples in a Prometheus text; comments and what is no sample are left out."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        labels = {name: _unescaped(raw) for name, raw in _LABEL.findall(match["labels"] or "")}
        found.append(Metric(name=match["name"], labels=labels, value=value))
    return found


def sample_of(
    text: str,
    *,
    worker: str = "",
    sampled_at: float = 0.0,
    gpu_util: float | None = None,
    gpu_mem: float | None = None,
) -> ServerSample:
    """Return a sample from the text of `/metrics`; what it does not report is None.

    Counts of several engines behind one server are added; of their cache usages the largest counts.

    Args:
        text: as the server gave it.
        worker: whose server it is.
        sampled_at: Unix time, seconds.
        gpu_util: share of the GPUs' time, where known.
        gpu_mem: bytes in use on the GPUs, where known.
    """
    sums = sums_of(text)
    usages = [metric.value for metric in metrics_of(text) if metric.name == _KV_USAGE]
    counts: dict[str, Any] = {
        field: int(sums[name]) if name in sums else None for field, name in _COUNTS.items()
    }
    return ServerSample(
        worker=worker,
        sampled_at=sampled_at,
        kv_usage=max(usages, default=None),
        gpu_util=gpu_util,
        gpu_mem=gpu_mem,
        **counts,
    )


def sums_of(text: str) -> dict[str, float]:
    """Return every metric by its name, those of several engines behind one server added."""
    sums: dict[str, float] = {}
    for metric in metrics_of(text):
        sums[metric.name] = sums.get(metric.name, 0.0) + metric.value
    return sums


def cache_config_of(text: str) -> Mapping[str, str]:
    """Return how the server says its cache is set up (`block_size`, `mamba_cache_mode`, ...)."""
    infos = [metric.labels for metric in metrics_of(text) if metric.name == _CACHE_CONFIG]
    return infos[0] if infos else {}


def metrics_text(base_url: str, *, timeout_s: float = 10.0, proxy: Proxy | None = None) -> str:
    """Return the text of `/metrics` of the server at `base_url` (which ends in `/v1`).

    Raises:
        ServerError: it does not answer, or has no metrics.
    """
    url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
    try:
        return fetch(url, timeout_s=timeout_s, proxy=proxy).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        raise ServerError(f"{url} does not answer: {error}") from error


def tokens_done(sample: ServerSample) -> int:
    """Return the prompt and completion tokens that the server has worked off.

    A server hangs if they stand still while requests are there.
    """
    return (sample.prompt_tokens or 0) + (sample.generation_tokens or 0)


def has_requests(sample: ServerSample) -> bool:
    """Return whether requests run or wait."""
    return bool((sample.running or 0) + (sample.waiting or 0))


def may_start_another(sample: ServerSample | None) -> bool:
    """Return whether the server has room for another run.

    It has while no request waits and the KV cache is not nearly full; runs grow, so a full cache
    would have running ones evicted and their prompts computed again. Unknown counts as room, and
    so does an idle server.
    """
    if sample is None or not has_requests(sample):
        return True
    return not sample.waiting and (sample.kv_usage is None or sample.kv_usage < MAX_KV_USAGE)


def _unescaped(raw: str) -> str:
    return raw.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
