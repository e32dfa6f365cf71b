"""A run as an ATIF trajectory, which other viewers show and `ingest` reads back without loss.

Steps hold what ATIF has a place for: messages, tool calls with their results, and the usage of step
calls. Auxiliary calls are no steps of the format; like the arm's edits they stand in our part, the
whole record under `extra`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from pipeline.records.journal import RUN_JSON
from pipeline.records.rows import STEP, summed
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.views.trajectory import Message, ToolCall

VERSION = "ATIF-v1.6"
OURS = "planprune"
"""The key under which our own facts lie."""


def atif_from_record(record: RunRecord) -> dict[str, Any]:
    """Return the trajectory file of a run, as JSON data."""
    answered = [call for call in record.calls if call.answered]
    return {
        "schema_version": VERSION,
        "session_id": record.run_id,
        "agent": {
            "name": record.agent,
            "version": record.versions.get("mini-swe-agent", "unknown"),
            "model_name": record.model,
        },
        "steps": [{"step_id": i, **step} for i, step in enumerate(_steps(record), start=1)],
        "final_metrics": {
            "total_prompt_tokens": summed(c.prompt_tokens for c in answered),
            "total_completion_tokens": summed(c.completion_tokens for c in answered),
            "total_cached_tokens": summed(c.cached_tokens for c in answered),
            "total_steps": sum(call.kind == STEP for call in answered),
        },
        "extra": {OURS: RUN_JSON.dump_python(record, mode="json", exclude_defaults=True)},
    }


def record_from_atif_export(data: Mapping[str, Any]) -> RunRecord | None:
    """Return the record of a file that `atif_from_record` made; None for any other.

    Raises:
        ValueError: our part of the file is damaged.
    """
    extra = data.get("extra")
    ours = extra.get(OURS) if isinstance(extra, Mapping) else None
    return None if ours is None else RUN_JSON.validate_python(ours)


def _steps(record: RunRecord) -> Iterator[dict[str, Any]]:
    calls = {c.step_index: c for c in record.calls if c.kind == STEP and c.reply is None}
    for message in record.messages:
        if message.role == "assistant":
            following = record.messages[message.index + 1 :]
            results = list(takewhile(lambda m: m.is_observation, following))
            yield _agent_step(message, results, calls.get(message.step_index))
        elif not message.is_observation:
            source = "system" if message.role == "system" else "user"
            yield {"source": source, "message": message.content}


def _agent_step(
    message: Message, results: Sequence[Message], call: CallRecord | None
) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": message.content}
    if message.reasoning is not None:
        step["reasoning_content"] = message.reasoning
    if message.tool_calls:
        step["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if results:
        step["observation"] = {
            "results": [
                {"source_call_id": result.tool_call_id, "content": result.content}
                for result in results
            ]
        }
    if call is None:
        return step | {"llm_call_count": 0}
    if call.started_at is not None:
        step["timestamp"] = datetime.fromtimestamp(call.started_at, UTC).isoformat()
    metrics = {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
        "cached_tokens": call.cached_tokens,
    }
    step["metrics"] = {name: value for name, value in metrics.items() if value is not None}
    if call.cache_write_tokens is not None:
        # Of the names that converters use, the one that stands for a part of the prompt.
        step["metrics"]["extra"] = {"cache_creation_input_tokens": call.cache_write_tokens}
    return step


def _tool_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = None
    # The format wants an object; what the model sent instead is kept as it is.
    return {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": arguments if isinstance(arguments, dict) else {"raw": call.arguments},
    }
