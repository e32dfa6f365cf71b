"""A client's message list, read: what its messages say, and which lists begin alike.

Clients send lists of their own making. Any field may be missing or of the wrong kind; what cannot
be read counts as empty, and the server will say what it thinks of it. Cache markers move from
message to message, and reasoning is dropped from old ones, without the history being another: both
are left out of what is compared.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.views.trajectory import ToolCall

ClientMessage = Mapping[str, Any]

_FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def digests_of(messages: Sequence[ClientMessage]) -> list[bytes]:
    """Return a digest of each beginning of the list, from the empty one to the whole."""
    digests = [b""]
    for message in messages:
        text = json.dumps(_compared(message), sort_keys=True).encode()
        digests.append(hashlib.blake2b(digests[-1] + text, digest_size=16).digest())
    return digests


def role_of(message: ClientMessage) -> str:
    """Return who speaks."""
    return str(message.get("role"))


def content_of(message: ClientMessage) -> str:
    """Return the text of a message's content; pictures are left out."""
    parts = message.get("content")
    texts = [text for kind, text in _parts(parts) if kind == "text"]
    return encodable("\n".join(texts))


def calls_of(message: ClientMessage) -> tuple[ToolCall, ...]:
    """Return the tool calls of an assistant message."""
    found = message.get("tool_calls")
    calls = []
    for call in found if isinstance(found, list) else ():
        if not isinstance(call, Mapping):
            continue
        function = call.get("function") or call.get("custom")
        function = function if isinstance(function, Mapping) else {}
        arguments = function.get("arguments", function.get("input"))
        if not isinstance(arguments, str):
            arguments = "{}" if arguments is None else json.dumps(arguments)
        calls.append(
            ToolCall(
                id=encodable(str(call.get("id") or "")),
                name=encodable(str(function.get("name") or "")),
                arguments=encodable(arguments),
            )
        )
    return tuple(calls)


def fenced_command(text: str) -> str | None:
    """Return the last fenced block of a reply in text mode: its action."""
    blocks = _FENCED.findall(text)
    return str(blocks[-1]).strip() if blocks else None


def encodable(text: str) -> str:
    """Return `text` with `?` for halves of surrogate pairs, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _compared(message: ClientMessage) -> list[Any]:
    calls = [(c.id, c.name, c.arguments) for c in calls_of(message)]
    return [role_of(message), _parts(message.get("content")), calls, message.get("tool_call_id")]


def _parts(content: object) -> list[tuple[str, str]]:
    """Return the kind of each part of a content and its text; of a picture, all it holds."""
    if not isinstance(content, list):
        return [("text", str(content))] if content not in (None, "") else []
    parts = []
    for part in content:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append(("text", part["text"]))
        elif isinstance(part, Mapping):
            held = {name: value for name, value in part.items() if name != "cache_control"}
            parts.append((str(part.get("type")), json.dumps(held, sort_keys=True)))
        else:
            parts.append(("text" if isinstance(part, str) else "unknown", json.dumps(part)))
    return [(kind, text) for kind, text in parts if text]
