"""Makes `tiny`: a random two-layer Qwen3 with the real Qwen3 tokenizer, for tests of the server.

Run by `make_test_models.sh` with vLLM's interpreter:
    make_tiny_model.py TOKENIZER_FOLDER OUT
TOKENIZER_FOLDER holds Qwen3's tokenizer.json and tokenizer_config.json (chat template included).
The weights are drawn from a fixed seed: nothing the model says means anything, but prompts,
caching, tools and limits behave as with any Qwen3, and it loads in a second.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 151_936
WINDOW = 32_768


def main(tokenizer: Path, out: Path) -> None:
    """Write config, weights and tokenizer to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=WINDOW,
        rope_theta=1_000_000.0,
        tie_word_embeddings=True,
        bos_token_id=151_643,
        eos_token_id=151_645,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
