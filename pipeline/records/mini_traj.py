"""mini-SWE-agent trajectory files, read: messages, usage, ending.

Format `mini-swe-agent-1.1` (mini 2.x), tool calls or text actions. What such a file does not say
stays None: latencies, tool lists, request seeds. Files that this project exported hold the whole
record beside mini's own keys and come back as it (`mini_export`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.records.failure import FailureClass
from pipeline.records.rows import STEP
from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Message, ToolCall, Trajectory

FORMAT = "mini-swe-agent-1.1"

Count = Callable[[str], int]
"""Tokens of a text."""

_ENDINGS = {
    "Submitted": FailureClass.OK,
    "LimitsExceeded": FailureClass.LIMIT_STEPS,
    "TimeExceeded": FailureClass.LIMIT_TIME,
    "RepeatedFormatError": FailureClass.LIMIT_FORMAT,
    "ContextWindowExceededError": FailureClass.LIMIT_CONTEXT,
    # What litellm calls the errors of a server or of the way to it.
    "APIConnectionError": FailureClass.INFRA_SERVER,
    "APIError": FailureClass.INFRA_SERVER,
    "AuthenticationError": FailureClass.INFRA_SERVER,
    "BadGatewayError": FailureClass.INFRA_SERVER,
    "InternalServerError": FailureClass.INFRA_SERVER,
    "RateLimitError": FailureClass.INFRA_SERVER,
    "ServiceUnavailableError": FailureClass.INFRA_SERVER,
    "Timeout": FailureClass.INFRA_SERVER,
    # mini saves after every step: a file without an ending is of a run that was killed.
    "": FailureClass.INFRA_NODE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MiniRun:
    """One recorded run. `calls` hold the server's usage."""

    instance_id: str | None
    model: str
    trajectory: Trajectory
    calls: tuple[CallRecord, ...]
    exit_status: str
    failure_class: FailureClass
    failure: str | None
    submission: str
    mini_version: str
    started_at: float | None
    finished_at: float | None
    reported_calls: int | None
    """How many calls the file says were made; more than `calls` where replies were not kept."""


def trajectory_from_mini(data: Mapping[str, Any], count: Count) -> MiniRun:
    """Return the run of a trajectory file.

    Raises:
        ValueError: not such a file; the message says what is wrong.
    """
    messages, info = _checked(data)
    reader = _Reader(count=count)
    for mini in messages:
        reader.take(mini)
    trajectory = Trajectory()
    trajectory.append(reader.messages)
    exit_status = str(info.get("exit_status") or "")
    submission = str(info.get("submission") or "")
    return MiniRun(
        instance_id=data.get("instance_id"),
        model=_model_name(info, messages),
        trajectory=trajectory,
        calls=tuple(reader.calls),
        exit_status=exit_status,
        failure_class=ending_of(exit_status, submission),
        failure=info.get("traceback") or info.get("exception_str"),
        submission=submission,
        mini_version=str(info.get("mini_version") or "unknown"),
        started_at=min(reader.times, default=None),
        finished_at=max(reader.times, default=None),
        reported_calls=_mapping(info.get("model_stats")).get("api_calls"),
    )


def ending_of(exit_status: str, submission: str) -> FailureClass:
    """Return the failure class of mini's `exit_status`, which is the name of an exception."""
    ending = _ENDINGS.get(exit_status, FailureClass.AGENT_ERROR)
    if ending is FailureClass.OK and not submission.strip():
        return FailureClass.SUBMITTED_EMPTY
    return ending


def _checked(data: Any) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    if not isinstance(data, Mapping):
        raise ValueError(f"it holds a {type(data).__name__}, not an object")  # noqa: TRY004
    found = data.get("trajectory_format")
    if found != FORMAT:
        raise ValueError(f"trajectory_format is {found!r}; only {FORMAT!r} (mini 2.x) is read")
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("no messages in it")
    for position, mini in enumerate(messages):
        if not isinstance(mini, Mapping) or "role" not in mini:
            raise ValueError(
                f"message {position} has no role; Responses API trajectories are not read"
            )
    return messages, _mapping(data.get("info"))


@dataclass(slots=True)
class _Reader:
    """Reads mini's messages in order; a step is a reply of the model, usable or not."""

    count: Count
    messages: list[Message] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    step: int = 0
    actions: list[Mapping[str, Any]] = field(default_factory=list)
    """Of the last assistant message, those whose result has not come yet."""

    def take(self, mini: Mapping[str, Any]) -> None:
        extra = _mapping(mini.get("extra"))
        self.times += [float(extra["timestamp"])] if extra.get("timestamp") else []
        role = mini["role"]
        if role == "exit":
            return
        if role == "assistant":
            self._take_reply(mini, extra)
        elif role == "tool" or "returncode" in extra or "raw_output" in extra:
            self._take_observation(mini, extra)
        else:
            if _is_format_error(extra):
                self._take_unusable(extra)
            self._add(mini)

    def _take_reply(self, mini: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        self.step += 1
        response = extra.get("response")
        self.calls.append(self._call(response))
        self.times += [float(t) for t in (_mapping(response).get("created"),) if t]
        self.actions = list(extra.get("actions") or ())
        self._add(mini, tool_calls=tool_calls_of(mini))

    def _take_unusable(self, extra: Mapping[str, Any]) -> None:
        """A reply that mini could not parse: it is billed, and kept only beside the error."""
        self.step += 1
        response = extra.get("response")
        reply = _first_message(response)
        text = extra.get("model_response") or text_of(reply.get("content"))
        call = self._call(response, error="format error", reply=text)
        self.calls.append(call)

    def _take_observation(self, mini: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        action = self._action_of(mini.get("tool_call_id"))
        returncode = extra.get("returncode")
        self._add(
            mini,
            tool_call_id=mini.get("tool_call_id"),
            tool=str(action.get("tool") or "bash"),
            command=action.get("command"),
            returncode=returncode if isinstance(returncode, int) else None,
            **_output_of(mini, extra),
        )

    def _action_of(self, tool_call_id: str | None) -> Mapping[str, Any]:
        for position, action in enumerate(self.actions):
            if tool_call_id is None or action.get("tool_call_id") == tool_call_id:
                return self.actions.pop(position)
        return {}

    def _call(
        self, response: Any, *, error: str | None = None, reply: str | None = None
    ) -> CallRecord:
        found = _mapping(response)
        choice = next(iter(found.get("choices") or ()), None)
        return CallRecord(
            step_index=self.step,
            kind=STEP,
            message_count=len(self.messages),
            finish_reason=_mapping(choice).get("finish_reason"),
            started_at=found.get("created"),
            error=error,
            reply=reply,
            **usage_of(_mapping(found.get("usage"))),
        )

    def _add(
        self,
        mini: Mapping[str, Any],
        *,
        tool_calls: tuple[ToolCall, ...] = (),
        **known: Any,
    ) -> None:
        content = text_of(mini.get("content"))
        reasoning = reasoning_of(mini)
        call_text = "".join(c.name + c.arguments for c in tool_calls)
        self.messages.append(
            Message(
                index=len(self.messages),
                step_index=self.step,
                role=mini["role"],
                content=content,
                reasoning=reasoning,
                tool_calls=tool_calls,
                n_tokens=self.count(content) + (self.count(call_text) if call_text else 0),
                reasoning_tokens=self.count(reasoning) if reasoning else 0,
                n_lines=len(content.splitlines()),
                **known,
            )
        )


def _output_of(mini: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the raw output that mini keeps beside the text its template made of it."""
    raw, content = extra.get("raw_output"), text_of(mini.get("content"))
    if not isinstance(raw, str):
        return {}
    # An output that stands there twice could be either, and a long one was elided by mini.
    return {"output": raw, "output_start": content.index(raw) if content.count(raw) == 1 else None}


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a chat-completions `usage`, None for what it does not say."""
    prompt = _mapping(usage.get("prompt_tokens_details"))
    completion = _mapping(usage.get("completion_tokens_details"))
    cached = prompt.get("cached_tokens")
    return {
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": usage.get("prompt_cache_hit_tokens") if cached is None else cached,
        "completion_tokens": usage.get("completion_tokens"),
        "reasoning_tokens": completion.get("reasoning_tokens"),
    }


def text_of(content: Any) -> str:
    """Return a message's content as one text; lists of parts are joined, pictures left out."""
    if isinstance(content, list):
        return "\n".join(_content_parts(content))
    return "" if content is None else str(content)


def _content_parts(content: Sequence[Any]) -> Iterator[str]:
    for part in content:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]


def reasoning_of(mini: Mapping[str, Any]) -> str | None:
    """Return the reasoning under any of the names that servers give it."""
    provider = _mapping(mini.get("provider_specific_fields"))
    for text in (
        mini.get("reasoning_content"),
        mini.get("reasoning"),
        provider.get("reasoning_content"),
    ):
        if isinstance(text, str) and text:
            return text
    return None


def tool_calls_of(mini: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tool calls of an assistant message."""
    calls = []
    for call in mini.get("tool_calls") or ():
        function = _mapping(call.get("function"))
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(id=call.get("id") or "", name=function["name"], arguments=text))
    return tuple(calls)


def _is_format_error(extra: Mapping[str, Any]) -> bool:
    return extra.get("interrupt_type") == "FormatError" or "response" in extra


def _first_message(response: Any) -> Mapping[str, Any]:
    choice = next(iter(_mapping(response).get("choices") or ()), None)
    return _mapping(_mapping(choice).get("message"))


def _model_name(info: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str:
    config = _mapping(_mapping(info.get("config")).get("model"))
    answered = (_mapping(_mapping(m.get("extra")).get("response")).get("model") for m in messages)
    return str(config.get("model_name") or next(filter(None, answered), "unknown"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
