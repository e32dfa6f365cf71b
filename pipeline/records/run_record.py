"""What is kept of one finished run, and the rows it becomes.

A `RunRecord` is everything: identity, ending, messages, calls, plan events, decisions. The worker
makes one at the end of a run, the journal keeps it, compaction turns it into rows. All of it is
pure; neither files nor the agent are known here.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.records.failure import FailureClass
from pipeline.records.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    PlanEvent,
    ToolCall,
    Trajectory,
    tool_calls_as_sent,
)

STEP = "step"
CLEANUP = "cleanup"

SHARED_REASONS = frozenset({"elide"})
"""Reasons of edits that every arm shares; they are no pruning."""

Row = dict[str, Any]


def text_sha256(text: str) -> str:
    """Return the SHA-256 of `text` in hex, which names patches and tool lists."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One request to the model. `call_index` is its place in `RunRecord.calls`.

    `edits`, `transient` and `messages` say what was sent: see docs/records.md on `view_edits`.
    """

    step_index: int
    kind: str
    """A `CallKind` value."""
    message_count: int
    """Messages of the trajectory when the call was made."""
    edits: tuple[Edit, ...] = ()
    """The edits first in force at this call; they stay in force for all later calls."""
    transient: tuple[Edit, ...] = ()
    """Edits laid over the view for this call only."""
    messages: tuple[Mapping[str, Any], ...] | None = None
    """A conversation of its own, sent instead of the view."""
    prompt_tokens: int | None = None
    """None: there was no answer, or (imported runs) one whose usage was not recorded."""
    cached_tokens: int | None = None
    lcp_tokens: int | None = None
    lcp_block_tokens: int | None = None
    new_tokens: int | None = None
    rebilled_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    tools_sha256: str | None = None
    """Key of `RunRecord.tools`."""
    tool_choice: str | Mapping[str, Any] | None = None
    latency_s: float | None = None
    ttft_s: float | None = None
    finish_reason: str | None = None
    request_seed: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    retry_tokens: int = 0
    error: str | None = None
    reply: str | None = None
    """The answer's text, where no message of the trajectory holds it (cleanup, format error)."""
    reply_tool_calls: tuple[ToolCall, ...] = ()
    started_at: float | None = None

    @property
    def answered(self) -> bool:
        """True where the server answered, usably or not: the call was billed."""
        return self.prompt_tokens is not None or self.error is None or self.reply is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """Everything of one finished run. `run_rows` and its siblings turn it into table rows."""

    run_id: str
    sweep: str
    benchmark: str
    instance_id: str
    repo: str
    model: str
    agent: str
    arm: str
    seed: int
    block_id: str
    phase: int = 1
    attempt: int
    exit_status: str
    failure_class: FailureClass
    failure: str | None = None
    """For people: message and traceback of what went wrong."""
    patch: str = ""
    """What the agent submitted."""
    limit_patch: str | None = None
    """The sandbox's diff of a run that ended at a limit."""
    loop: bool = False
    template_dropped_tokens: int | None = None
    wall_s: float | None = None
    tool_s: float | None = None
    gpu_s: float | None = None
    token_counter: str
    evidence: str
    started_at: float
    finished_at: float
    worker: str
    node: str
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    plan_events: tuple[PlanEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """Tool lists as JSON text, by their `text_sha256`."""

    @property
    def patch_sha256(self) -> str | None:
        """Hash of the submitted patch; None without one."""
        return text_sha256(self.patch) if self.patch else None

    @property
    def limit_patch_sha256(self) -> str | None:
        """Hash of the limit patch; None without one."""
        return text_sha256(self.limit_patch) if self.limit_patch else None

    def trajectory(self) -> Trajectory:
        """Return the run's history."""
        trajectory = Trajectory(plan_events=list(self.plan_events), decisions=list(self.decisions))
        trajectory.append(self.messages)
        return trajectory


def summed(values: Iterable[int | float | None]) -> Any:
    """Return the sum, or None if any part of it is unknown."""
    total: int | float = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _peak(calls: Iterable[CallRecord]) -> int | None:
    known = [c.prompt_tokens for c in calls]
    sizes = [size for size in known if size is not None]
    return max(sizes) if sizes and len(sizes) == len(known) else None


_SAME_NAME = (
    *("run_id", "sweep", "benchmark", "instance_id", "repo", "model", "agent", "arm", "seed"),
    *("block_id", "phase", "attempt", "exit_status", "failure", "loop", "template_dropped_tokens"),
    *("wall_s", "tool_s", "gpu_s", "token_counter", "evidence", "started_at", "finished_at"),
    *("worker", "node", "patch", "patch_sha256", "limit_patch", "limit_patch_sha256", "commit"),
)


def run_row(record: RunRecord, *, journal: str = "", offset: int | None = None) -> Row:
    """Return the row of `runs`: sums over the calls that were answered, unknown stays None."""
    calls = [c for c in record.calls if c.answered]
    steps = [c for c in calls if c.kind == STEP]
    cleanups = [c for c in calls if c.kind == CLEANUP]
    others = [c for c in calls if c.kind not in (STEP, CLEANUP)]
    prunings = prunings_of(record)
    return {
        **{name: getattr(record, name) for name in _SAME_NAME},
        "failure_class": record.failure_class.value,
        "n_steps": len(steps),
        "n_calls": len(calls),
        "input_tokens": summed(c.prompt_tokens for c in calls),
        "cached_tokens": summed(c.cached_tokens for c in calls),
        "output_tokens": summed(c.completion_tokens for c in calls),
        "reasoning_tokens": summed(c.reasoning_tokens for c in calls),
        "cleanup_input_tokens": summed(c.prompt_tokens for c in cleanups),
        "cleanup_output_tokens": summed(c.completion_tokens for c in cleanups),
        "aux_input_tokens": summed(c.prompt_tokens for c in others),
        "aux_output_tokens": summed(c.completion_tokens for c in others),
        "peak_context_tokens": _peak(calls),
        "peak_step_context_tokens": _peak(steps),
        "n_observations": sum(m.is_observation for m in record.messages),
        "n_pruned": len(prunings),
        "pruned_tokens": sum(p.tokens for p in prunings.values()),
        "n_cleanups": len(cleanups),
        "retry_tokens": sum(c.retry_tokens for c in record.calls),
        "model_s": summed(c.latency_s for c in calls),
        "versions": json_text(record.versions),
        "extra": json_text(record.extra) if record.extra else None,
        "journal": journal,
        "journal_offset": offset,
    }


def call_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `calls`."""
    for index, call in enumerate(record.calls):
        yield {
            "run_id": record.run_id,
            "call_index": index,
            **{name: getattr(call, name) for name in _CALL_SAME_NAME},
            "view_edits": view_edits_of(call),
            "tool_choice": None if call.tool_choice is None else json_text(call.tool_choice),
            "reply_tool_calls": tool_calls_text(call.reply_tool_calls),
        }


_CALL_SAME_NAME = (
    *("step_index", "kind", "message_count", "prompt_tokens", "cached_tokens", "lcp_tokens"),
    *("lcp_block_tokens", "new_tokens", "rebilled_tokens", "completion_tokens"),
    *("reasoning_tokens", "tools_sha256", "latency_s", "ttft_s", "finish_reason"),
    *("request_seed", "temperature", "max_tokens", "retry_tokens", "error", "reply", "started_at"),
)


def message_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `messages`."""
    prunings = prunings_of(record)
    for message in record.messages:
        pruning = prunings.get(message.index)
        yield {
            "run_id": record.run_id,
            "message_index": message.index,
            **{name: getattr(message, name) for name in _MESSAGE_SAME_NAME},
            "tool_calls": tool_calls_text(message.tool_calls),
            "truncated": message.dropped_bytes > 0,
            "pruned_at_call": pruning and pruning.call_index,
            "prune_reason": pruning and pruning.reason,
            "replaced_by": pruning and pruning.replaced_by,
        }


_MESSAGE_SAME_NAME = (
    *("step_index", "role", "tool_call_id", "tool", "command", "returncode", "content"),
    *("reasoning", "n_tokens", "reasoning_tokens", "n_lines", "dropped_bytes"),
)


def plan_event_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `plan_events`."""
    step_calls = {c.step_index: i for i, c in enumerate(record.calls) if c.kind == STEP}
    for index, event in enumerate(record.plan_events):
        yield {
            "run_id": record.run_id,
            "event_index": index,
            "call_index": step_calls.get(event.step_index),
            **{name: getattr(event, name) for name in _EVENT_SAME_NAME},
        }


_EVENT_SAME_NAME = (
    *("step_index", "message_index", "action", "plan_step", "title", "status", "outcome"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """How an observation left the view."""

    call_index: int
    reason: str
    replaced_by: str
    tokens: int


def prunings_of(record: RunRecord) -> dict[int, Pruning]:
    """Return, by message index, the observations whose text the arm replaced or dropped.

    Edits that all arms share (elision) are no pruning. `tokens` is what the message counted as it
    was shown just before; an elided text counts in proportion to its characters.
    """
    prunings: dict[int, Pruning] = {}
    elided: dict[int, str] = {}
    for index, call in enumerate(record.calls):
        for edit in call.edits:
            if edit.part not in (Part.CONTENT, Part.DROPPED):
                continue
            if not 0 <= edit.message_index < len(record.messages):
                continue
            message = record.messages[edit.message_index]
            if edit.reason in SHARED_REASONS:
                elided[message.index] = edit.text
            elif message.is_observation:
                first = prunings.get(message.index)
                prunings[message.index] = Pruning(
                    call_index=first.call_index if first else index,
                    reason=first.reason if first else edit.reason,
                    replaced_by="" if edit.part is Part.DROPPED else edit.text,
                    tokens=first.tokens if first else _tokens_shown(message, elided),
                )
    return prunings


def _tokens_shown(message: Message, elided: Mapping[int, str]) -> int:
    shown = elided.get(message.index)
    if shown is None or not message.content:
        return message.n_tokens
    return min(message.n_tokens, round(message.n_tokens * len(shown) / len(message.content)))


# --- JSON columns --------------------------------------------------------------------------------
def json_text(value: Any) -> str:
    """Return compact JSON; key order is kept, since it is part of what was sent."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def tool_calls_text(calls: tuple[ToolCall, ...]) -> str | None:
    """Return tool calls as JSON, as sent; None without any."""
    return json_text(tool_calls_as_sent(calls)) if calls else None


def tool_calls_from(text: str | None) -> tuple[ToolCall, ...]:
    """Return what `tool_calls_text` wrote."""
    return tuple(
        ToolCall(
            id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
        )
        for call in json.loads(text or "[]")
    )


def view_edits_of(call: CallRecord) -> str | None:
    """Return the `view_edits` column; None where the call changed nothing."""
    parts: dict[str, Any] = {}
    if call.edits:
        parts["edits"] = [_edit_json(e) for e in call.edits]
    if call.transient:
        parts["transient"] = [_edit_json(e) for e in call.transient]
    if call.messages is not None:
        parts["messages"] = list(call.messages)
    return json_text(parts) if parts else None


def _edit_json(edit: Edit) -> list[Any]:
    return [edit.message_index, edit.part.value, edit.text, edit.reason]


def edit_from(values: list[Any]) -> Edit:
    """Return the edit that `view_edits` holds as a list."""
    index, part, text, reason = values
    return Edit(message_index=index, part=Part(part), text=text, reason=reason)
