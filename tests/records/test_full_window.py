"""A full window is recognised in any server's words, and its numbers are read; nothing else is."""

import json

import pytest

from pipeline.records.full_window import FullWindow, full_window_of, is_overflow

SAID = [
    # vLLM
    (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
        "(4200 in the messages, 800 in the completion). Please reduce the length.",
        (4096, 4200),
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context "
        "length is 8192 tokens and your request has 5000 input tokens (4096 > 8192 - 5000).",
        (8192, 5000),
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 4096 output "
        "tokens and your prompt contains at least 4097 input tokens, for a total of at least 8193 "
        "tokens. Please reduce the length of the input prompt.",
        (8192, 4097),
    ),
    (
        "You passed 33056 input tokens and requested 4096 output tokens. However, the model's "
        "context length is only 32768 tokens, resulting in a maximum input length of 28672 tokens.",
        (32768, 33056),
    ),
    ("The decoder prompt (length 9) is longer than the maximum model length of 8.", (8, 9)),
    ("The engine prompt length 9 exceeds the max_model_len 8. Please reduce prompt.", (8, 9)),
    # SGLang
    (
        "The input (40961 tokens) is longer than the model's context length (32768 tokens).",
        (32768, 40961),
    ),
    (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You "
        "requested a total of 33000 tokens: 30000 tokens from the input messages and 3000 tokens "
        "for the completion.",
        (32768, 30000),
    ),
    # llama.cpp, then its Python binding
    (
        "request (33056 tokens) exceeds the available context size (32768 tokens), try increasing "
        "it",
        (32768, 33056),
    ),
    ("Context size has been exceeded.", (None, None)),
    ("Requested tokens (2400) exceed context window of 2048", (2048, 2400)),
    # Text Generation Inference, TensorRT-LLM
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
        "`inputs` tokens and 200 `max_new_tokens`",
        (4096, 4000),
    ),
    (
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
        (1024, 2000),
    ),
    ("Prompt length (5000) exceeds maximum input length (4096).", (4096, 5000)),
    # services
    (
        "This model's maximum context length is 128,000 tokens. However, your messages resulted in "
        "130,001 tokens. Please reduce the length of the messages.",
        (128000, 130001),
    ),
    ("prompt is too long: 208310 tokens > 200000 maximum", (200000, 208310)),
    (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease "
        "input length or `max_tokens` and try again",
        (200000, 190000),
    ),
    (
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        (1048576, 1048577),
    ),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        (32768, 40000),
    ),
    ("Your input exceeds the context window of this model.", (None, None)),
    ("litellm.ContextWindowExceededError: the prompt was refused", (None, None)),
]


@pytest.mark.parametrize(("words", "numbers"), SAID)
def test_a_full_window_is_read_in_any_servers_words(words, numbers):
    for status, body in [
        (400, json.dumps({"error": {"message": words, "type": "BadRequestError"}}).encode()),
        (500, json.dumps({"object": "error", "message": words})),
        (None, words),
    ]:
        found = full_window_of(status, body)
        assert found is not None
        assert (found.window_tokens, found.prompt_tokens) == numbers


def test_an_error_type_or_a_bare_413_says_it_too():
    typed = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "no"}}
    fields = {"n_prompt_tokens": 33056, "n_ctx": 32768}
    assert is_overflow(400, json.dumps({"error": {"code": "context_length_exceeded"}}))
    assert is_overflow(413, "Request Entity Too Large")
    found = full_window_of(400, json.dumps({"error": typed["error"] | fields}))
    assert found == FullWindow(window_tokens=32768, prompt_tokens=33056)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Unrecognized request argument supplied: cache_salt"),
        (400, "max_tokens is too large: 100000. This model supports at most 16384 tokens."),
        (400, "Invalid 'messages[3].tool_calls[0].id': string too long. Maximum length is 40."),
        (400, "temperature exceeds the maximum value of 2"),
        (429, "Too many tokens: this model's maximum context length is fine, wait a minute"),
        (413, "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 9000"),
        (500, "CUDA out of memory"),
        (None, "Exceeded the rate limit of the organisation"),
    ],
)
def test_no_other_refusal_is_taken_for_a_full_window(status, words):
    assert not is_overflow(status, json.dumps({"error": {"message": words}}))


def test_the_room_for_an_answer_follows_from_the_numbers():
    assert FullWindow(window_tokens=100, prompt_tokens=80).room(50) == 20
    assert FullWindow(window_tokens=100, prompt_tokens=120).room(50) == 0
    assert FullWindow(window_tokens=100, total_tokens=130).room(50) == 20
    assert FullWindow(window_tokens=100).room(50) is None
