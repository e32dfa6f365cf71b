"""What a server's `/metrics` say, and what follows for the next run."""

import pytest

from pipeline.records.failure import ServerError
from pipeline.records.grade_record import ServerSample
from pipeline.serving.metrics import (
    cache_config_of,
    may_start_another,
    metrics_of,
    metrics_text,
    sample_of,
)
from pipeline.serving.sim import SimConfig, serve

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.6919e+04
vllm:generation_tokens_total{engine="0",model_name="m"} 110.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 16919.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.796041987147303e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 576.0
vllm:cache_config_info{block_size="32",mamba_cache_mode="align",said="a \\"b\\""} 1.0
python_info{version="3.11"} 1.0
broken line
"""


def test_a_sample_adds_engines_and_takes_the_fullest_cache():
    sample = sample_of(TEXT, worker="w", sampled_at=5.0, gpu_util=0.5)
    assert sample == ServerSample(
        worker="w",
        sampled_at=5.0,
        running=4,
        waiting=2,
        kv_usage=0.75,
        prompt_tokens=16919,
        generation_tokens=110,
        prefix_queries=16919,
        prefix_hits=576,
        preemptions=None,
        gpu_util=0.5,
    )


def test_what_a_server_does_not_report_is_unknown_and_not_zero():
    sample = sample_of("python_info 1.0\n", worker="w", sampled_at=5.0)
    assert sample == ServerSample(worker="w", sampled_at=5.0)


def test_labels_are_read_with_their_escapes():
    assert cache_config_of(TEXT) == {
        "block_size": "32",
        "mamba_cache_mode": "align",
        "said": 'a "b"',
    }
    assert cache_config_of("") == {}
    assert len(metrics_of("broken line\nx{} y\n# x 1\n")) == 0


def test_a_real_server_is_read_over_http():
    sim = serve(SimConfig())
    try:
        sample = sample_of(metrics_text(f"http://127.0.0.1:{sim.port}/v1"))
    finally:
        sim.stop()
    assert (sample.waiting, sample.prompt_tokens, sample.generation_tokens) == (0, 0, 0)
    with pytest.raises(ServerError, match="metrics does not answer"):
        metrics_text(f"http://127.0.0.1:{sim.port}/v1", timeout_s=1.0)


@pytest.mark.parametrize(
    ("running", "waiting", "kv_usage", "may"),
    [
        (None, None, None, True),
        (0, 0, 0.99, True),
        (3, 0, 0.5, True),
        (3, 0, None, True),
        (3, 1, 0.1, False),
        (3, 0, 0.9, False),
    ],
)
def test_another_run_starts_while_nothing_waits_and_the_cache_has_room(
    running: int | None, waiting: int | None, kv_usage: float | None, may: bool
):
    sample = ServerSample(
        worker="w", sampled_at=0.0, running=running, waiting=waiting, kv_usage=kv_usage
    )
    assert may_start_another(sample) is may
    assert may_start_another(None)
