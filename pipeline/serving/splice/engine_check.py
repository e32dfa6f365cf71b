"""Which engines the store works in: those where spliced keys were compared with computed ones.

Reads vLLM's configuration as objects and imports no vLLM.
"""

from typing import Any

PROVEN = ("LlamaForCausalLM", "Qwen3ForCausalLM")
"""Architectures of which spliced keys were compared with computed ones in tests."""


class SpliceRefusedError(ValueError):
    """The engine, as it is configured, cannot move keys."""


def check_supported(vllm_config: Any, kv_cache_config: Any) -> None:
    """Refuse engines in which moved keys would be wrong, or in which nobody has compared them.

    Raises:
        SpliceRefusedError: names all that stands in the way.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel, text = vllm_config.parallel_config, model.hf_text_config
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    names = sorted({type(spec).__name__ for spec in specs})
    transfer = vllm_config.kv_transfer_config
    reasons = {
        f"layers other than full attention (hybrid state or sliding windows): {', '.join(names)}": (
            len(specs) != 1 or "FullAttention" not in names[0]
        ),
        "a sliding window": any(getattr(spec, "sliding_window", None) for spec in specs),
        "chunked attention": any(getattr(spec, "attention_chunk_size", None) for spec in specs),
        "MLA": bool(getattr(model, "use_mla", False)),
        f"a KV cache in {cache.cache_dtype}": cache.cache_dtype
        not in ("auto", "float16", "bfloat16", "float32"),
        f"scaled RoPE ({kind})": kind != "default",
        "RoPE on a part of each head": (rope.get("partial_rotary_factor") or 1.0) != 1.0,
        "tensor parallelism": parallel.tensor_parallel_size > 1,
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "speculative decoding": vllm_config.speculative_config is not None,
        "prefix caching switched off": not cache.enable_prefix_caching,
        'kv_load_failure_policy "fail" (set "recompute")': (
            transfer.kv_load_failure_policy != "recompute"
        ),
        f"an architecture not compared ({', '.join(model.architectures)})": not (
            set(model.architectures) <= set(PROVEN)
        ),
    }
    found = [reason for reason, stands in reasons.items() if stands]
    if found:
        raise SpliceRefusedError(
            f"cache: splice cannot move keys in this engine because of {'; '.join(found)}. Serve"
            " the model otherwise, or without serve.splice_store_gib; docs/splice.md says why"
        )


def rope_theta(vllm_config: Any) -> float:
    """Return the base of the model's rotary positions."""
    text = vllm_config.model_config.hf_text_config
    rope = getattr(text, "rope_parameters", None) or {}
    return float(rope.get("rope_theta") or text.rope_theta)
