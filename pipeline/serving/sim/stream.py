"""A chat completion as the events of a stream: the same reply, in the pieces that servers send."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

EVENTS = "text/event-stream; charset=utf-8"
_PIECE_CHARS = 24


def stream_of(completed: Mapping[str, Any], request: Mapping[str, Any]) -> bytes:
    """Return the events of `completed`, with its usage where the request asks for it."""
    options = request.get("stream_options")
    asks_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    chunks = [_chunk(completed, [choice]) for choice in _choices(completed["choices"][0])]
    if asks_usage:
        chunks.append({**_chunk(completed, []), "usage": completed["usage"]})
    texts = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def _chunk(completed: Mapping[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    kept = {name: completed[name] for name in ("id", "created", "model")}
    return {**kept, "object": "chat.completion.chunk", "choices": choices}


def _choices(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for delta in _deltas(choice["message"]):
        yield {"index": 0, "delta": delta, "finish_reason": None}
    yield {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning", "content"):
        for piece in _pieces(message[name] or ""):
            yield {name: piece}
    for index, call in enumerate(message["tool_calls"]):
        function = call["function"]
        # Only the first piece of a call has its id and its name.
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]
