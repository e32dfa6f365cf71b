"""The beginning of a finished run that another run of its block repeats, up to its first edit.

While the run asks for exactly what the recorded one asked for, it is given the recorded answers,
and its commands are executed again, so that its sandbox is where the recorded one was. From the
first request that differs on (docs/planning.md, Forked pairs) it is a run like any other.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from pipeline.agent.encoded_view import encoded
from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import ChatReply, ChatRequest, Completer
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.shell.volatile import stable
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Edit, Part, ToolCall, Trajectory, merged, view_messages

SAME_IN_ALL_ARMS = frozenset({"parallel_tool_calls"})
"""Further fields of a request's body that follow from the agent: no arm changes them."""


class ForkDifferenceError(Exception):
    """A command that was executed again did something else: the prefix cannot be shared."""


class SharedPrefix:
    """A recorded run as the run sees it that shares its beginning. One thread."""

    def __init__(self, record: RunRecord, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """Begin at the first call of `record`."""
        self.record = record
        self.forked_at_call: int | None = None
        """Index of the first call of the run's own; None while everything is shared."""
        self.skipped_s = 0.0
        """What the recorded run took for the shared calls, beyond what they took this time."""
        self._now_s = now_s
        self._began_s: float | None = None
        self._n_calls = 0
        self._observed = iter([m for m in record.messages if m.output is not None])
        self._seen = Trajectory()
        self._standing: dict[tuple[int, Part], Edit] = {}

    @property
    def is_shared(self) -> bool:
        """True until the run has made a call of its own."""
        return self.forked_at_call is None

    def reply_to(self, request: ChatRequest) -> ChatReply | None:
        """Return the recorded answer; None from the first request on that was not recorded."""
        if not self.is_shared:
            return None
        self._began_s = self._now_s() if self._began_s is None else self._began_s
        index, calls = self._n_calls, self.record.calls
        if index < len(calls):
            call = calls[index]
            self._standing = merged(self._standing, call.edits)
            self._seen.append(self.record.messages[len(self._seen.messages) : call.message_count])
            if call.prompt_tokens is not None and self._is_of(request, call):
                self._n_calls += 1
                return _answer_in(self.record, call)
        self.forked_at_call = index
        self.skipped_s = self._recorded_s(index) - (self._now_s() - self._began_s)
        return None

    def result_of(self, action: Action, result: ToolResult) -> ToolResult:
        """Return the recorded result of an action that was carried out again.

        Raises:
            ForkDifferenceError: it came to something else this time.
        """
        if not self.is_shared:
            return result
        recorded = next(self._observed)
        output = recorded.output or ""
        if result.returncode != recorded.returncode or stable(result.output) != stable(output):
            raise ForkDifferenceError(
                f"call {self._n_calls - 1}: {action.command!r:.200} gave another output again "
                f"(status {recorded.returncode}, then {result.returncode})"
            )
        command = result.command and replace(
            result.command,
            output=output,
            dropped_bytes=recorded.dropped_bytes,
            undecodable_bytes=recorded.undecodable_bytes,
        )
        return replace(result, output=output, command=command)

    def waited_s(self, message_index: int) -> float:
        """Return the recorded wait for a shared result, which arms may go by."""
        return self.record.messages[message_index].waited_s or 0.0

    def _is_of(self, request: ChatRequest, call: CallRecord) -> bool:
        """Return whether `request` is what the recorded call sent, byte for byte."""
        tools = self.record.tools.get(call.tools_sha256 or "", "[]")
        shown = merged(self._standing, call.transient)
        sent = view_messages(self._seen, shown) if call.messages is None else call.messages
        return (
            (request.seed, request.temperature, request.max_tokens, request.tool_choice)
            == (call.request_seed, call.temperature, call.max_tokens, call.tool_choice)
            and request.extra.keys() <= SAME_IN_ALL_ARMS
            and request.tools.decode() == tools
            and list(request.messages) == [encoded(message) for message in sent]
        )

    def _recorded_s(self, n_calls: int) -> float:
        """Return how long the recorded run took until its call of this number."""
        began = [call.started_at for call in self.record.calls[: n_calls + 1]]
        first, last = (began[0], began[-1]) if began else (None, None)
        return last - first if first is not None and last is not None else 0.0


class SharedReplies:
    """A completer that answers from a shared prefix, and asks the server for what is not in it."""

    def __init__(self, prefix: SharedPrefix, completer: Completer) -> None:
        self._prefix, self._completer = prefix, completer

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; see `pipeline.protocols.Completer`."""
        return self._prefix.reply_to(request) or self._completer.complete(request)


def _answer_in(record: RunRecord, call: CallRecord) -> ChatReply:
    """Return the answer to a recorded call as the server gave it."""
    content, reasoning, tool_calls = call.reply, call.reply_reasoning, call.reply_tool_calls
    if content is None:
        answer = record.messages[call.message_count]
        content, reasoning, tool_calls = answer.content, answer.reasoning, answer.tool_calls
    return ChatReply(
        content=content,
        reasoning=reasoning,
        tool_calls=_requested(tool_calls, call.lone_surrogates or 0),
        lone_surrogates=call.lone_surrogates or 0,
        finish_reason=call.finish_reason,
        prompt_tokens=call.prompt_tokens or 0,
        cached_tokens=call.cached_tokens,
        completion_tokens=call.completion_tokens or 0,
        reasoning_tokens=call.reasoning_tokens,
        latency_s=call.latency_s or 0.0,
        ttft_s=call.ttft_s,
        retry_tokens=call.retry_tokens,
        started_at=call.started_at or 0.0,
    )


def _requested(calls: tuple[ToolCall, ...], lone_surrogates: int) -> tuple[RequestedToolCall, ...]:
    """Return recorded tool calls as asked for; which of them held half characters is not kept."""
    return tuple(
        RequestedToolCall(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            lone_surrogates=lone_surrogates if "\ufffd" in call.arguments else 0,
        )
        for call in calls
    )
