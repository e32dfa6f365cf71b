"""The table rows that a run becomes: sums, calls, messages, plan events.

Pure. Sums are over the answered calls whose value is known, and how many these are stands beside
them; where no value is known the sum is None.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pipeline.fields.kept import kept_values
from pipeline.records.json_columns import json_text, tool_calls_text, view_edits_of
from pipeline.records.patch import patch_cells
from pipeline.records.pruning import prunings_of
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.unusable import n_calls_as_text, n_format_errors
from pipeline.views.trajectory import Message

STEP = "step"
CLEANUP = "cleanup"

Row = dict[str, Any]


def summed(values: Iterable[int | float | None]) -> Any:
    """Return the sum over the known values; None where there are values and none is known."""
    given = list(values)
    known = [value for value in given if value is not None]
    return sum(known) if known or not given else None


def _peak(calls: Iterable[CallRecord]) -> int | None:
    return max((c.prompt_tokens for c in calls if c.prompt_tokens is not None), default=None)


def run_row(record: RunRecord, *, journal: str = "", offset: int | None = None) -> Row:
    """Return the row of `runs`: sums over the answered calls whose values are known."""
    calls = [c for c in record.calls if c.answered]
    steps = [c for c in calls if c.kind == STEP]
    cleanups = [c for c in calls if c.kind == CLEANUP]
    others = [c for c in calls if c.kind not in (STEP, CLEANUP)]
    prunings = prunings_of(record)
    return {
        **kept_values(record),
        "failure_class": record.failure_class.value,
        "patch_sha256": record.patch_sha256,
        "limit_patch_sha256": record.limit_patch_sha256,
        **patch_cells("patch", record.patch),
        **patch_cells("limit_patch", record.limit_patch),
        "n_steps": len(steps),
        "n_calls": len(calls),
        "n_counted_calls": sum(c.prompt_tokens is not None for c in calls),
        "n_cache_counted_calls": sum(c.cached_tokens is not None for c in calls),
        "input_tokens": summed(c.prompt_tokens for c in calls),
        "cached_tokens": summed(c.cached_tokens for c in calls),
        "reused_tokens": summed(c.reused_tokens for c in calls),
        "rotated_tokens": summed(c.rotated_tokens for c in calls),
        "recomputed_tokens": summed(c.recomputed_tokens for c in calls),
        "output_tokens": summed(c.completion_tokens for c in calls),
        "reasoning_tokens": summed(c.reasoning_tokens for c in calls),
        **_shared_sums(record),
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
        "n_ignored_ids": sum(len(json.loads(c.ignored_ids or "[]")) for c in cleanups),
        "n_format_errors": n_format_errors(calls),
        "n_calls_as_text": n_calls_as_text(calls),
        "retry_tokens": sum(c.retry_tokens for c in record.calls),
        "model_s": summed(c.latency_s for c in calls),
        **_pruner_sums(record.calls),
        "versions": json_text(record.versions),
        "extra": json_text(record.extra) if record.extra else None,
        "journal": journal,
        "journal_offset": offset,
    }


def _shared_sums(record: RunRecord) -> Row:
    """Return what of the sums is in calls of the run that this one begins with; else empty."""
    if record.forked_at_call is None:
        return {"shared_input_tokens": None, "shared_output_tokens": None}
    shared = [c for c in record.calls[: record.forked_at_call] if c.answered]
    return {
        "shared_input_tokens": summed(c.prompt_tokens for c in shared),
        "shared_output_tokens": summed(c.completion_tokens for c in shared),
    }


def _pruner_sums(calls: Iterable[CallRecord]) -> Row:
    """Return what the arm's line pruner took and missed; empty where none was asked."""
    asked = [call for call in calls if call.pruner_answer is not None]
    if not asked:
        return {"pruner_s": None, "n_pruner_errors": None}
    answers = [out for c in asked for out in json.loads(c.pruner_answer or "{}")["outputs"]]
    return {
        "pruner_s": summed(call.pruner_s for call in asked),
        "n_pruner_errors": sum("error" in answer for answer in answers),
    }


def call_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `calls`."""
    for index, call in enumerate(record.calls):
        yield {
            "run_id": record.run_id,
            "call_index": index,
            **kept_values(call),
            "view_edits": view_edits_of(call),
            "tool_choice": None if call.tool_choice is None else json_text(call.tool_choice),
            "reply_tool_calls": tool_calls_text(call.reply_tool_calls),
        }


def message_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `messages`."""
    prunings = prunings_of(record)
    for message in record.messages:
        pruning = prunings.get(message.index)
        yield {
            "run_id": record.run_id,
            "message_index": message.index,
            **kept_values(message),
            "tool_calls": tool_calls_text(message.tool_calls),
            **_output_columns(message),
            "truncated": message.dropped_bytes > 0,
            "pruned_at_call": pruning and pruning.call_index,
            "prune_reason": pruning and pruning.reason,
            "replaced_by": pruning and pruning.replaced_by,
        }


def _output_columns(message: Message) -> Row:
    """Return the raw output as a part of the content, which is kept once, or as text."""
    if message.output is None or message.output_start is None:
        return {"output": message.output}
    return {"output_start": message.output_start, "output_length": len(message.output)}


def plan_event_rows(record: RunRecord) -> Iterator[Row]:
    """Yield the rows of `plan_events`."""
    step_calls = {c.step_index: i for i, c in enumerate(record.calls) if c.kind == STEP}
    for index, event in enumerate(record.plan_events):
        yield {
            "run_id": record.run_id,
            "event_index": index,
            "call_index": step_calls.get(event.step_index),
            **kept_values(event),
        }
