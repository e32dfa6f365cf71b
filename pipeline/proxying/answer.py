"""An upstream's reply, read for the record: what it says, what it cost, or what went wrong.

The client gets the reply as it came, whatever is made of it here. Nothing is believed: a field of
the wrong kind is unknown. The client's keys are taken out of what is kept of an error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.proxying.client_list import ClientMessage, calls_of, content_of, encodable
from pipeline.proxying.secret_words import secrets_in, without
from pipeline.proxying.shown_list import TEXT_REASONING
from pipeline.records.foreign.mini import usage_of
from pipeline.records.full_window import full_window_of
from pipeline.records.run_record import OVERFLOW, CallRecord
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import ToolCall

_ERROR_CHARS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of one request."""

    content: str | None = None
    """None where nothing was said."""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Mapping[str, int | None] = field(default_factory=dict)
    n_choices: int = 0
    error: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of the call's record that the answer gives."""
        return {
            **self.usage,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "reply": self.content,
            "reply_reasoning": self.reasoning,
            "reply_tool_calls": self.tool_calls,
        }

    @property
    def requested_calls(self) -> tuple[RequestedToolCall, ...]:
        """The tool calls as a policy is given them."""
        return tuple(
            RequestedToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in self.tool_calls
        )


def answer_in(completion: object, error: str | None = None) -> Answer:
    """Return what a chat completion says; its first choice, where there are several.

    Args:
        completion: the reply's JSON, or what a stream added up to.
        error: what went wrong all the same, such as a stream that broke off.
    """
    found = completion if isinstance(completion, Mapping) else {}
    listed = found.get("choices")
    choices = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
    if error is None and not choices:
        # Gateways answer 200 and put the error of the server behind them into the body.
        said = json.dumps(found.get("error") or found)
        error = error_text(None, said.encode(), {}) if said else None
    if not choices:
        return Answer(error=error, usage=_usage_in(found))
    first = choices[0].get("message")
    message: ClientMessage = first if isinstance(first, Mapping) else {}
    finish = choices[0].get("finish_reason")
    return Answer(
        content=content_of(message),
        reasoning=reasoning_of(message),
        tool_calls=calls_of(message),
        finish_reason=finish if isinstance(finish, str) else None,
        usage=_usage_in(found),
        n_choices=len(choices),
        error=error,
    )


def reasoning_of(message: ClientMessage) -> str | None:
    """Return the reasoning of an assistant message under any of its names."""
    texts = (message.get(name) for name in TEXT_REASONING)
    return next((encodable(text) for text in texts if isinstance(text, str) and text), None)


def says_the_same(call: CallRecord, message: ClientMessage) -> bool:
    """Return whether an assistant message of a client's list is the answer to `call`."""
    ids = [made.id for made in calls_of(message)]
    if ids or call.reply_tool_calls:
        return ids == [made.id for made in call.reply_tool_calls]
    return content_of(message).strip() == (call.reply or "").strip()


def error_text(status: int | None, body: bytes, headers: Mapping[str, str]) -> str:
    """Return what the record says of an error, without the secrets of the client's `headers`."""
    text = without(secrets_in(headers), body.decode("utf-8", "replace"))[:_ERROR_CHARS].strip()
    shown = text if status is None else f"HTTP {status}: {text}"
    return f"{OVERFLOW}{shown}" if full_window_of(status, body) is not None else shown


def _usage_in(completion: Mapping[str, Any]) -> dict[str, int | None]:
    usage = completion.get("usage")
    try:
        counts = usage_of(usage if isinstance(usage, Mapping) else {})
    except AttributeError:
        # Details that are no object: the sums beside them are not believed either.
        return {}
    return {name: n if type(n) is int and n >= 0 else None for name, n in counts.items()}
