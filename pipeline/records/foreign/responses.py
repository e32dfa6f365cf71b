"""mini's Responses API items as the chat messages that the rest of its files hold.

With that API a reply is an object with a list `output` (reasoning, text, function calls) and has no
role, and a result is an item `function_call_output`. Reasoning may be there as a summary, or only
encrypted: then its text stays unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def is_responses_item(item: Mapping[str, Any]) -> bool:
    """Return whether a message of the file is an item of the Responses API."""
    return item.get("object") == "response" or item.get("type") == "function_call_output"


def chat_form(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item as a chat message of mini's; what is one already comes back as it is."""
    if item.get("type") == "function_call_output":
        content = item.get("output")
        return {
            "role": "tool",
            "tool_call_id": item.get("call_id"),
            "content": list(_parts(content)) if isinstance(content, list) else content,
            "extra": item.get("extra"),
        }
    if not is_responses_item(item):
        return item
    output = [part for part in item.get("output") or () if isinstance(part, Mapping)]
    return {
        "role": "assistant",
        "content": "\n".join(_texts(output, "message", "content")),
        "reasoning_content": "\n".join(_texts(output, "reasoning", "summary")) or None,
        "tool_calls": [
            {
                "id": part.get("call_id") or part.get("id"),
                "function": {"name": part.get("name"), "arguments": part.get("arguments")},
            }
            for part in output
            if part.get("type") == "function_call"
        ],
        "extra": {**(item.get("extra") or {}), "response": _chat_response(item)},
    }


def _chat_response(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "created": item.get("created_at"),
        "model": item.get("model"),
        "usage": item.get("usage"),
        "choices": [{"finish_reason": item.get("status")}],
    }


def _texts(output: Sequence[Mapping[str, Any]], kind: str, field: str) -> Iterator[str]:
    for item in output:
        parts = item.get(field) if item.get("type") == kind else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield part["text"]


def _parts(content: Sequence[Any]) -> Iterator[Any]:
    """Yield the parts of a result under the names that chat messages have for them."""
    names = {"input_text": "text", "output_text": "text", "input_image": "image_url"}
    for part in content:
        if isinstance(part, Mapping):
            yield {**part, "type": names.get(str(part.get("type")), part.get("type"))}
