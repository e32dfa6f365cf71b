"""mini-SWE-agent trajectory files, read: messages, usage, ending.

Formats `mini-swe-agent-1.1` (mini 2.x: tool calls, text actions or the Responses API) and
`mini-swe-agent-1` (mini 1.x). What such a file does not say stays None: latencies, tool lists,
request seeds. Files that this project exported hold the whole record beside mini's own keys and
come back as it (`mini_export`).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.records.foreign import format1
from pipeline.records.foreign.counts import counts_in, tokens
from pipeline.records.foreign.endings import Ending
from pipeline.records.foreign.pictures import n_pictures, weighed
from pipeline.records.foreign.responses import chat_form
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.records.foreign.times import duration, unix_seconds, with_waits
from pipeline.records.rows import STEP
from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Message, ToolCall, Trajectory

FORMAT = "mini-swe-agent-1.1"
AGENT = "mini-swe-agent"


def trajectory_from_mini(data: Mapping[str, Any], count: Count) -> ForeignRun:
    """Return the run of a trajectory file.

    Raises:
        ValueError: not such a file; the message says what is wrong.
    """
    messages, info = _checked(data)
    reader = _Reader(count=count)
    for mini in messages:
        reader.take(mini)
    trajectory = Trajectory()
    trajectory.append(
        with_waits(weighed(reader.messages, reader.calls, reader.pictures), reader.calls)
    )
    exit_status, submission = str(info.get("exit_status") or ""), str(info.get("submission") or "")
    wall_s, time_note = duration(reader.times)
    stats = _mapping(info.get("model_stats"))
    return ForeignRun(
        instance_id=data.get("instance_id"),
        agent=AGENT,
        agent_version=str(info.get("mini_version") or "unknown"),
        model=_model_name(info, messages),
        trajectory=trajectory,
        calls=tuple(reader.calls),
        exit_status=exit_status,
        failure_class=Ending(
            exit_status=exit_status,
            error=_error_of(info, messages),
            submission=submission,
            n_calls=len(reader.calls),
            over_budget=_is_over_budget(_mapping(info.get("config")), stats),
        ).failure_class,
        failure=info.get("traceback") or info.get("exception_str") or reader.last_words or None,
        submission=submission,
        started_at=None if time_note else min(reader.times, default=None),
        finished_at=None if time_note else max(reader.times, default=None),
        wall_s=wall_s,
        reported_calls=stats.get("api_calls"),
        notes=(time_note,) if time_note else (),
    )


def _error_of(info: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what the exception that ended the run said, without the code of its traceback."""
    last = messages[-1]
    extra = _mapping(last.get("extra"))
    said = [info.get("exception_str"), extra.get("exception_str")]
    if last.get("role") == "exit":
        said.append(text_of(last.get("content")))
    said += str(info.get("traceback") or "").strip().splitlines()[-1:]
    return "\n".join(str(text) for text in said if text)


def _is_over_budget(config: Mapping[str, Any], stats: Mapping[str, Any]) -> bool:
    """Return whether it was the cost limit that ended the run, which has one name with steps."""
    agent = _mapping(config.get("agent"))
    cost, limit = stats.get("instance_cost"), agent.get("cost_limit")
    calls, steps = stats.get("api_calls"), agent.get("step_limit")
    if not isinstance(cost, int | float) or not isinstance(limit, int | float) or limit <= 0:
        return False
    out_of_steps = isinstance(calls, int) and isinstance(steps, int) and 0 < steps <= calls
    return cost >= limit and not out_of_steps


def _checked(data: Any) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    if not isinstance(data, Mapping):
        raise ValueError(f"it holds a {type(data).__name__}, not an object")  # noqa: TRY004
    found = data.get("trajectory_format")
    if found not in (FORMAT, format1.FORMAT):
        raise ValueError(f"trajectory_format is {found!r}; {FORMAT} and {format1.FORMAT} are read")
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("no messages in it")
    if not all(isinstance(mini, Mapping) for mini in messages):
        raise ValueError("a message of it is no object")
    read = list(format1.current_form(messages) if found == format1.FORMAT else messages)
    read = [chat_form(mini) for mini in read]
    for position, mini in enumerate(read):
        if "role" not in mini:
            raise ValueError(f"message {position} has no role and is no item of the Responses API")
    return read, _mapping(data.get("info"))


@dataclass(slots=True)
class _Reader:
    """Reads mini's messages in order; a step is a reply of the model, usable or not."""

    count: Count
    messages: list[Message] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    pictures: Counter[int] = field(default_factory=Counter)
    """Index of a message to the pictures in it."""
    last_words: str = ""
    """Of the message with which mini ends a run that nobody submitted."""
    step: int = 0
    actions: list[Mapping[str, Any]] = field(default_factory=list)
    """Of the last assistant message, those whose result has not come yet."""

    def take(self, mini: Mapping[str, Any]) -> None:
        extra = _mapping(mini.get("extra"))
        self._note_time(_mapping(extra.get("response")).get("created"))
        self._note_time(extra.get("timestamp"))
        role = mini["role"]
        if role == "exit":
            self.last_words = "" if extra.get("submission") else text_of(mini.get("content"))
            return
        if role == "assistant":
            self._take_reply(mini, extra)
        elif role == "tool" or "returncode" in extra or "raw_output" in extra:
            self._take_observation(mini, extra)
        else:
            if _is_format_error(extra):
                self._take_unusable(extra)
            self._add(mini)

    def _note_time(self, value: Any) -> None:
        moment = unix_seconds(value)
        if moment is not None:
            self.times.append(moment)

    def _take_reply(self, mini: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        self.step += 1
        response = extra.get("response")
        self.calls.append(self._call(response))
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
            started_at=unix_seconds(found.get("created")),
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
        n = n_pictures(mini.get("content"))
        if n:
            self.pictures[len(self.messages)] = n
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
    if not isinstance(raw, str) or n_pictures(mini.get("content")):
        return {}  # mini keeps pictures in the raw output, as text
    # An output that stands there twice could be either, and a long one was elided by mini.
    return {"output": raw, "output_start": content.index(raw) if content.count(raw) == 1 else None}


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a `usage` in chat completions' or the Responses API's words.

    None for what it does not say.
    """
    prompt = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    completion = usage.get("completion_tokens_details", usage.get("output_tokens_details"))
    cached = tokens(counts_in(prompt), "cached_tokens")
    return {
        "prompt_tokens": tokens(usage, _named(usage, "prompt_tokens", "input_tokens")),
        "cached_tokens": tokens(usage, "prompt_cache_hit_tokens") if cached is None else cached,
        "completion_tokens": tokens(usage, _named(usage, "completion_tokens", "output_tokens")),
        "reasoning_tokens": tokens(counts_in(completion), "reasoning_tokens"),
    }


def _named(usage: Mapping[str, Any], chat: str, responses: str) -> str:
    return chat if chat in usage else responses


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
