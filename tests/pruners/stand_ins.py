"""Models of the published architectures, tiny, with weights set by hand so that one can tell.

A byte is a token. The classifiers look at exclamation marks; the language model finds digits rare
and expects again what it has seen.
"""

from pathlib import Path

from tests.linehead.extra import need_torch

need_torch()

import torch  # noqa: E402
from tokenizers import (  # noqa: E402
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
)

# Models this small only lose by threads, on a shared machine above all.
torch.set_num_threads(1)

MARK = "!"
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_NAMED = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of one token a byte, with XLM-RoBERTa's special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*_SPECIAL, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_NAMED)


def piece_tokenizer() -> PreTrainedTokenizerFast:
    """Return one like XLM-RoBERTa's: spaces and newlines are no tokens, text is normalised."""
    pieces = ["\u2581", *"!abcdefghijklmnopqrstuvwxyz0123456789()=:"]
    vocabulary = [(token, 0.0) for token in _SPECIAL] + [(piece, -2.0) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_NAMED)


def _encoder_config(n_labels: int, positions: int = 128) -> XLMRobertaConfig:
    return XLMRobertaConfig(
        vocab_size=len(byte_tokenizer()),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=positions + 2,
        num_labels=n_labels,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )


def _hand_set_encoder(model: torch.nn.Module, mark: int, *, mixing: float) -> None:
    """Make states say whether a token is the mark; `mixing` brings in the mean of all tokens."""
    with torch.no_grad():
        encoder = model.roberta
        for table in (
            encoder.embeddings.position_embeddings,
            encoder.embeddings.token_type_embeddings,
        ):
            table.weight.zero_()
        words = encoder.embeddings.word_embeddings.weight
        words.zero_()
        words[:, 1] = 1.0
        words[mark] = 0.0
        words[mark, 0] = 1.0
        for layer in encoder.encoder.layer:
            attention = layer.attention
            for linear in (
                *(attention.self.query, attention.self.key, attention.self.value),
                *(attention.output.dense, layer.intermediate.dense, layer.output.dense),
            ):
                linear.weight.zero_()
                linear.bias.zero_()
            attention.self.value.weight.copy_(torch.eye(8))
            attention.output.dense.weight.copy_(mixing * torch.eye(8))


def token_classifier(folder: Path, *, pieces: bool = False) -> Path:
    """Write a classifier that finds exclamation marks worth keeping and nothing else."""
    tokenizer = piece_tokenizer() if pieces else byte_tokenizer()
    model = XLMRobertaForTokenClassification(_encoder_config(2)).eval()
    _hand_set_encoder(model, tokenizer.convert_tokens_to_ids(MARK), mixing=0.0)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.zero_()
        model.classifier.weight[1, 0] = 2.0
    return _saved(model, folder, tokenizer)


def reranker(folder: Path) -> Path:
    """Write a cross-encoder that likes pairs with many exclamation marks."""
    tokenizer = byte_tokenizer()
    model = XLMRobertaForSequenceClassification(_encoder_config(1, positions=2000)).eval()
    _hand_set_encoder(model, tokenizer.convert_tokens_to_ids(MARK), mixing=20.0)
    with torch.no_grad():
        model.classifier.dense.weight.copy_(torch.eye(8))
        model.classifier.dense.bias.zero_()
        model.classifier.out_proj.weight.zero_()
        model.classifier.out_proj.bias.zero_()
        model.classifier.out_proj.weight[0, 0] = 1.0
    return _saved(model, folder, tokenizer)


def language_model(folder: Path, *, positions: int = 256) -> Path:
    """Write a GPT-2 that finds digits rare, and likely what stood in its window already."""
    tokenizer = byte_tokenizer()
    size = len(tokenizer) + 4  # One direction a token, a constant, and some to spare.
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=size,
        n_layer=1,
        n_head=1,
        n_inner=8,
        n_positions=positions,
        bos_token_id=0,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config).eval()
    digits = [tokenizer.convert_tokens_to_ids(str(d)) for d in range(10)]
    n = len(tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for norm in (model.transformer.ln_f, *(b.ln_1 for b in model.transformer.h)):
            norm.weight.fill_(1.0)
        model.transformer.wte.weight[:, :n] = torch.eye(n)
        model.transformer.wte.weight[:, n] = 1.0
        block = model.transformer.h[0]
        # Uniform attention over what came before: the mean of it is added to the state.
        block.attn.c_attn.weight[:, 2 * size :] = torch.eye(size)
        block.attn.c_proj.weight.copy_(torch.eye(size))
        model.lm_head.weight[:, :n] = 0.5 * torch.eye(n)
        model.lm_head.weight[digits, n] = -0.3
    return _saved(model, folder, tokenizer)


def _saved(model: torch.nn.Module, folder: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
