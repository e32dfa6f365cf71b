"""A tiny random backbone with a real byte-level tokenizer and a chat template, made in a second."""

from pathlib import Path

from tests.linehead.extra import need_torch

need_torch()

import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}\n<call>{{ c.function | tojson }}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)

_TEXT = (
    "def function(self, value):\n    return value + 1\n\nclass Thing:\n    pass\n"
    "src/module/file.py: error: import numpy as np\nline number 1 2 3 4 5\n<output>\n"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE whose tokens span newlines and split characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 4, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    return fast


def tiny_backbone(folder: Path, *, hidden_size: int = 16) -> Path:
    """Write a random two-layer Qwen3 with its tokenizer into `folder`."""
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=4096,
    )
    Qwen3Model(config).save_pretrained(folder)
    return folder
