"""A client's request for a completion: what is read of it, and what is sent on instead.

Everything but the messages passes as it came. Where the arm changes nothing, so does the whole
body, byte by byte.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.proxying.client_list import ClientMessage, encodable
from pipeline.records.run_record import text_sha256
from pipeline.views.policy import AuxRequest

_OF_A_STEP = frozenset(
    {
        *("messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions"),
        *("function_call", "parallel_tool_calls", "response_format", "logprobs", "top_logprobs"),
        *("structured_outputs", "guided_json", "guided_regex", "stop", "seed", "prediction"),
    }
)
"""Fields that shape the answer to a step and say nothing about how the model is sampled."""
_LENGTHS = ("max_completion_tokens", "max_tokens")


class UnreadableError(Exception):
    """A request that cannot be read; the message says why, and the arm cannot be applied to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatCall:
    """One request, read."""

    raw: bytes
    body: Mapping[str, Any]
    messages: Sequence[ClientMessage]
    headers: Mapping[str, str]
    """Those that are passed on; keys among them."""
    path: str
    """Below the upstream's base URL."""

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return encodable(str(self.body.get("model") or "unknown"))

    @property
    def tools(self) -> tuple[str, str] | None:
        """Hash and JSON text of the tool list, as records keep it."""
        tools = self.body.get("tools")
        if not isinstance(tools, list) or not tools:
            return None
        text = encodable(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))
        return text_sha256(text), text

    @property
    def streams(self) -> bool:
        """Whether the client wants the answer as it is made."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants a stream to end with what the call cost."""
        options = self.body.get("stream_options")
        return isinstance(options, Mapping) and bool(options.get("include_usage"))

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of the call's record that the request gives."""
        choice = self.body.get("tool_choice")
        lengths = [self.body.get(name) for name in _LENGTHS]
        return {
            "tool_choice": choice if isinstance(choice, str | Mapping) else None,
            "temperature": _number(self.body.get("temperature")),
            "request_seed": _whole(self.body.get("seed")),
            "max_tokens": next((n for n in map(_whole, lengths) if n is not None), None),
        }

    def sent(self, shown: Sequence[ClientMessage], *, asks_usage: bool) -> bytes:
        """Return the body that goes to the upstream.

        Args:
            shown: what the model is shown.
            asks_usage: have a stream end with what the call cost.
        """
        same = len(shown) == len(self.messages) and all(map(_is, shown, self.messages))
        changed: dict[str, Any] = {} if same else {"messages": shown}
        if asks_usage and self.streams and not self.wants_usage:
            options = self.body.get("stream_options")
            known = options if isinstance(options, Mapping) else {}
            changed["stream_options"] = {**known, "include_usage": True}
        return json.dumps({**self.body, **changed}).encode() if changed else self.raw

    def aside(self, request: AuxRequest, messages: Sequence[ClientMessage]) -> bytes:
        """Return the body of a call that the arm makes: the client's model, sampled as it says.

        Args:
            request: what the policy wants.
            messages: what the model is shown.
        """
        body = {name: value for name, value in self.body.items() if name not in _OF_A_STEP}
        if request.messages is None and self.body.get("tools"):
            body |= {"tools": self.body["tools"], "tool_choice": request.tool_choice or "auto"}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            # Some servers know one of the names only: the client has the right one.
            name = next((name for name in _LENGTHS if name in body), _LENGTHS[0])
            body[name] = request.max_tokens
        return json.dumps({**body, "messages": list(messages)}).encode()


def chat_call(raw: bytes, headers: Mapping[str, str], path: str) -> ChatCall:
    """Return the request that `raw` is.

    Raises:
        UnreadableError: it is no chat completion's.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, Mapping):
        raise UnreadableError("the body must be a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnreadableError("`messages` must be a list with something in it")
    if not all(isinstance(message, Mapping) for message in messages):
        raise UnreadableError("`messages` must be a list of objects")
    return ChatCall(raw=raw, body=body, messages=messages, headers=headers, path=path)


def _is(one: object, other: object) -> bool:
    return one is other


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value == value else None  # type: ignore[arg-type]


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
