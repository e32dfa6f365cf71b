"""Whether a server's refusal means that the context window is full, and the numbers it gives.

Every server says it in its own words: an error type, a sentence, a bare status 413. The client asks
here about an answer it just got, and the readers of other people's trajectories about an error text
that somebody recorded, so that a full window is `limit_context` in both. What is done about it
(a shorter answer, the end of the run) is the caller's.

Some servers never say it: they drop the oldest messages and answer. `serving/preflight` finds them.
"""

import re
from dataclasses import dataclass

_CODES = re.compile(
    r"\b(context_length_exceeded|exceed_context_size_error|context_window_exceeded"
    r"|ContextWindowExceeded(Error)?|model_context_window_exceeded|request_too_large)\b"
)
"""Error types and codes: OpenAI and who follows it, llama.cpp, litellm, Anthropic."""


def _number(name: str) -> str:
    return rf"(?P<{name}>\d[\d,]*)"


_PROMPT, _WINDOW, _ANSWER, _TOTAL = map(_number, ("prompt", "window", "answer", "total"))

_SENTENCES: tuple[str, ...] = (
    # vLLM, OpenAI, llama-cpp-python and many gateways, in the wordings of 2023 to 2026
    rf"maximum context length is {_WINDOW} tokens.*?requested (?:about )?{_TOTAL} tokens"
    rf"(?: \((?:about )?{_PROMPT} (?:in the messages|of text input|in your prompt))?",
    rf"maximum context length is {_WINDOW} tokens.*?requested {_ANSWER} output tokens"
    rf".*?at least {_PROMPT} input tokens",
    rf"maximum context length is {_WINDOW} tokens and your request has {_PROMPT} input tokens",
    rf"maximum context length is {_WINDOW} tokens.*?messages resulted in {_PROMPT} tokens",
    rf"passed {_PROMPT} input tokens and requested {_ANSWER} output tokens"
    rf".*?context length is only {_WINDOW} tokens",
    rf"passed {_PROMPT} input tokens.*?context length is only {_WINDOW} tokens",
    rf"prompt \((?:length|token length) {_PROMPT}\) is longer than the maximum model length of "
    rf"{_WINDOW}",
    rf"prompt (?:length|\(length) {_PROMPT}\)? exceeds the max_model_len {_WINDOW}",
    rf"input length \({_PROMPT}\) exceeds model's maximum context length \({_WINDOW}\)",
    rf"Requested tokens \({_PROMPT}\) exceed context window of {_WINDOW}",
    rf"Input tokens exceed the configured limit of {_WINDOW} tokens"
    rf".*?messages resulted in {_PROMPT} tokens",
    # SGLang
    rf"input \({_PROMPT} tokens\) is longer than the model's context length \({_WINDOW} tokens\)",
    rf"exceeds the model's maximum context length of {_WINDOW} tokens"
    rf".*?total of {_TOTAL} tokens: {_PROMPT} tokens from the input",
    # llama.cpp, whose server says the second while an answer is being made
    rf"request \({_PROMPT} tokens\) exceeds the available context size \({_WINDOW} tokens\)",
    r"request exceeds the available context size",
    r"context size has been exceeded",
    # Text Generation Inference
    rf"`inputs` tokens \+ `max_new_tokens` must be <= {_WINDOW}\. Given: {_PROMPT} `inputs`",
    rf"`inputs` must have less than {_WINDOW} tokens\. Given: {_PROMPT}",
    # TensorRT-LLM
    rf"prompt length \({_PROMPT}\) exceeds maximum input length \({_WINDOW}\)",
    rf"sum of prompt length \({_PROMPT}(?:\.0)?\).*?should not exceed max_seq_len \({_WINDOW}\)",
    # Anthropic
    rf"prompt is too long: {_PROMPT} tokens > {_WINDOW} maximum",
    rf"input length and `max_tokens` exceed context limit: {_PROMPT} \+ {_ANSWER} > {_WINDOW}",
    # Gemini, Mistral, xAI, Moonshot, Cerebras, LM Studio
    rf"input token count \({_PROMPT}\) exceeds the maximum number of tokens allowed \({_WINDOW}\)",
    rf"Prompt contains {_PROMPT} tokens.*?too large for model with {_WINDOW} maximum context",
    rf"maximum prompt length is {_WINDOW} but the request contains {_PROMPT} tokens",
    rf"exceeded model token limit: {_WINDOW} \(requested: {_TOTAL}\)",
    rf"Current length is {_PROMPT} while limit is {_WINDOW}",
    rf"loaded with context length of only {_WINDOW} tokens, which is not enough",
    # without numbers
    r"maximum context length",
    r"prompt (?:is )?too long",
    r"input is too long for requested model",
    r"exceeds? (?:the |your )?(?:maximum |model's )?context (?:window|length|limit|size)",
    r"(?:longer than|larger than) the (?:model's )?(?:maximum )?context (?:window|length|size)",
    r"context window exceeds limit",
    r"longer than the maximum model length",
    r"reduce the length of the (?:messages|input prompt|prompt)",
    r"prompt exceeds max length",
)
_PATTERNS = tuple(re.compile(sentence, re.IGNORECASE | re.DOTALL) for sentence in _SENTENCES)

_FIELDS = {
    "prompt": re.compile(r'"n_prompt_tokens"\s*:\s*(\d+)'),
    "window": re.compile(r'"n_ctx"\s*:\s*(\d+)'),
}
"""Numbers that llama.cpp gives as fields of their own."""

_RATE_LIMIT = re.compile(
    r"rate[ _-]?limit|per (?:minute|hour|day)|\bTPM\b|\bquota\b", re.IGNORECASE
)
"""Speaks of too many tokens as well, and means too many a minute."""

_TOO_LARGE = 413


@dataclass(frozen=True, kw_only=True, slots=True)
class FullWindow:
    """What a refusal says of the window, in the server's own tokens; None is unsaid."""

    window_tokens: int | None = None
    prompt_tokens: int | None = None
    """Of the prompt alone; "at least" so many is taken at its word."""
    total_tokens: int | None = None
    """Of prompt and answer together."""

    def room(self, asked: int) -> int | None:
        """Return how long an answer would fit, where it was `asked` tokens that did not.

        None: the numbers do not tell.
        """
        prompt = self.prompt_tokens
        if prompt is None and self.total_tokens is not None:
            prompt = self.total_tokens - asked
        if prompt is None or self.window_tokens is None:
            return None
        return max(0, self.window_tokens - prompt)


def is_overflow(status: int | None, body: bytes | str) -> bool:
    """Return whether an answer says that the window is full.

    Args:
        status: of HTTP; None where only the text is known.
        body: the answer, or the error's text as somebody recorded it.
    """
    return full_window_of(status, body) is not None


def full_window_of(status: int | None, body: bytes | str) -> FullWindow | None:
    """Return what an answer says of a full window, None where it means anything else."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    if status == 429 or _RATE_LIMIT.search(text):
        return None
    match = next((m for p in _PATTERNS if (m := p.search(text)) is not None), None)
    if match is None and status != _TOO_LARGE and not _CODES.search(text):
        return None
    numbers = {} if match is None else {k: v for k, v in match.groupdict().items() if v}
    fields = {name: m[1] for name, pattern in _FIELDS.items() if (m := pattern.search(text))}
    found = {name: int(digits.replace(",", "")) for name, digits in (numbers | fields).items()}
    return FullWindow(
        window_tokens=found.get("window"),
        prompt_tokens=found.get("prompt"),
        total_tokens=found.get("total"),
    )
