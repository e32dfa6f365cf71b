"""Which engines are refused; the configurations are stand-ins for those of vLLM."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.serving.splice.engine_check import SpliceRefusedError, check_supported, rope_theta


class FullAttentionSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


def engine(**changes: Any) -> tuple[Any, Any]:
    """Return what vLLM hands a connector for a plain Llama, with changes by dotted name."""
    group = SimpleNamespace(kv_cache_spec=FullAttentionSpec(sliding_window=None))
    text = SimpleNamespace(rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    config = SimpleNamespace(
        model=SimpleNamespace(hf_text_config=text, architectures=["LlamaForCausalLM"]),
        cache=SimpleNamespace(cache_dtype="auto", enable_prefix_caching=True),
        parallel=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        transfer=SimpleNamespace(kv_load_failure_policy="recompute"),
        groups=[group],
        speculative=None,
    )
    for name, value in changes.items():
        part, _, field = name.partition("__")
        setattr(getattr(config, part), field, value) if field else setattr(config, part, value)
    vllm_config = SimpleNamespace(
        model_config=config.model,
        cache_config=config.cache,
        parallel_config=config.parallel,
        kv_transfer_config=config.transfer,
        speculative_config=config.speculative,
    )
    return vllm_config, SimpleNamespace(kv_cache_groups=config.groups)


def rope(**parameters: Any) -> Any:
    return SimpleNamespace(rope_parameters={"rope_theta": 1e6, **parameters})


full = SimpleNamespace(kv_cache_spec=FullAttentionSpec(sliding_window=None))
windowed = SimpleNamespace(kv_cache_spec=FullAttentionSpec(sliding_window=4096))
state = SimpleNamespace(kv_cache_spec=MambaSpec())


def test_a_plain_llama_is_served() -> None:
    check_supported(*engine())
    assert rope_theta(engine()[0]) == 1e6


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"groups": [windowed]}, "a sliding window"),
        ({"groups": [full, state]}, "hybrid state"),
        ({"model__use_mla": True}, "MLA"),
        ({"cache__cache_dtype": "fp8_e5m2"}, "fp8_e5m2"),
        ({"model__hf_text_config": rope(rope_type="yarn")}, "scaled RoPE (yarn)"),
        ({"model__hf_text_config": rope(type="llama3")}, "scaled RoPE (llama3)"),
        ({"model__hf_text_config": rope(partial_rotary_factor=0.5)}, "RoPE on a part"),
        ({"parallel__tensor_parallel_size": 2}, "tensor parallelism"),
        ({"parallel__pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"speculative": object()}, "speculative decoding"),
        ({"cache__enable_prefix_caching": False}, "prefix caching switched off"),
        ({"transfer__kv_load_failure_policy": "fail"}, 'kv_load_failure_policy "fail"'),
        ({"model__architectures": ["GPTJForCausalLM"]}, "GPTJForCausalLM"),
    ],
)
def test_what_cannot_be_spliced_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SpliceRefusedError) as told:
        check_supported(*engine(**changes))
    assert named in str(told.value)


def test_every_obstacle_is_named_at_once() -> None:
    with pytest.raises(SpliceRefusedError, match=r"MLA.*tensor parallelism"):
        check_supported(*engine(model__use_mla=True, parallel__tensor_parallel_size=8))
