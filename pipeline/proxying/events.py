"""Server-sent events on their way through: cut where they end, and the reply that they add up to.

Bytes arrive in pieces of any size. An event is passed on whole and as it came; what it says is read
beside that.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""An empty line. A return at the end of what is there may yet be half of a line's end: then the
newline that follows stands before the next event, where it means nothing."""
DONE = "[DONE]"


class EventSplitter:
    """Cuts a stream of bytes into events; joined, they are the stream."""

    def __init__(self) -> None:
        self.rest = b""
        """The beginning of an event whose end has not come."""
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that are whole now, each with the empty line that ends it."""
        self.rest += data
        events, start = [], 0
        for end in _END.finditer(self.rest, self._searched):
            events.append(self.rest[start : end.end()])
            start = end.end()
        self.rest = self.rest[start:]
        # An end may begin up to three bytes before what comes next.
        self._searched = max(0, len(self.rest) - 3)
        return events


def data_of(event: bytes) -> str:
    """Return the data lines of an event as one text; empty for a comment."""
    lines = re.split(rb"\r\n|\n|\r", event)
    found = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(found).decode("utf-8", "replace")


def object_of(data: str) -> dict[str, Any]:
    """Return the JSON object that an event's data is; empty where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_usage_alone(chunk: Mapping[str, Any]) -> bool:
    """Return whether a chunk says nothing but what the call cost."""
    return bool(chunk.get("usage")) and not chunk.get("choices")


class StreamedReply:
    """The chunks of a stream, added up to what the same reply would be in one piece."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether some of the answer has come."""
        self.has_ended = False
        """Whether the server said that this was all."""
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._error: Any = None

    def feed(self, data: str) -> dict[str, Any]:
        """Take an event's data; return its chunk."""
        if data.strip() == DONE:
            self.has_ended = True
            return {}
        chunk = object_of(data)
        self._usage = chunk.get("usage") or self._usage
        self._error = chunk.get("error") or self._error
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping):
                self._add(choice)
        return chunk

    def completion(self) -> dict[str, Any]:
        """Return the reply as a chat completion."""
        choices = [
            {
                "message": {**choice["message"], "tool_calls": list(choice["calls"].values())},
                "finish_reason": choice["finish_reason"],
            }
            for _, choice in sorted(self._choices.items())
        ]
        whole = {"choices": choices, "usage": self._usage}
        return whole if self._error is None else whole | {"error": self._error}

    def _add(self, part: Mapping[str, Any]) -> None:
        index = part.get("index")
        choice = self._choices.setdefault(
            index if isinstance(index, int) else 0,
            {"message": {}, "calls": {}, "finish_reason": None},
        )
        if part.get("finish_reason"):
            choice["finish_reason"] = part["finish_reason"]
            self.has_ended = True
        delta = part.get("delta")
        if not isinstance(delta, Mapping):
            return
        for name in ("content", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str) and delta[name]:
                self.has_begun = True
                choice["message"][name] = choice["message"].get(name, "") + delta[name]
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                self.has_begun = True
                _add_call(choice["calls"], call)


def _add_call(calls: dict[Any, dict[str, Any]], delta: Mapping[str, Any]) -> None:
    """Add a piece of a tool call; only the first has the id and the name."""
    index = delta.get("index")
    # Some servers number no call and send each whole.
    key = index if isinstance(index, int) else len(calls)
    call = calls.setdefault(key, {"id": None, "function": {"name": "", "arguments": ""}})
    call["id"] = call["id"] or delta.get("id")
    function = delta.get("function")
    for name in ("name", "arguments"):
        text = function.get(name) if isinstance(function, Mapping) else None
        if isinstance(text, str):
            call["function"][name] += text
