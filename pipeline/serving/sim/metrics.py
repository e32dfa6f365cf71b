"""The counters behind `/metrics`, under vLLM's names."""

from dataclasses import dataclass


@dataclass(slots=True)
class SimMetrics:
    """What the server has done so far."""

    running: int = 0
    waiting: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests: int = 0
    busy_s: float = 0.0

    def exposition(self, model: str) -> str:
        """Return the Prometheus text."""
        rows: tuple[tuple[str, str, float], ...] = (
            ("num_requests_running", "gauge", self.running),
            ("num_requests_waiting", "gauge", self.waiting),
            # Of running requests, as vLLM's: what is kept of ended ones can be had at any time.
            ("kv_cache_usage_perc", "gauge", 0),
            ("prefix_cache_queries_total", "counter", self.cache_queries),
            ("prefix_cache_hits_total", "counter", self.cache_hits),
            ("prompt_tokens_total", "counter", self.prompt_tokens),
            ("generation_tokens_total", "counter", self.generation_tokens),
            ("num_preemptions_total", "counter", 0),
            ("e2e_request_latency_seconds_sum", "counter", self.busy_s),
            ("e2e_request_latency_seconds_count", "counter", self.requests),
        )
        lines = []
        for name, kind, value in rows:
            lines.append(f"# TYPE vllm:{name} {kind}")
            lines.append(f'vllm:{name}{{engine="0",model_name="{model}"}} {float(value)}')
        return "\n".join(lines) + "\n"
