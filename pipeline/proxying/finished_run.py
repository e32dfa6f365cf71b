"""A conversation's parts, put together into the record of a finished run.

A proxy never learns how an agent ended; it only knows whether the server answered. The same is made
of a conversation in memory and of the parts that a killed proxy left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pipeline.records.failure import FailureClass
from pipeline.records.foreign.history import NOT_RECORDED, History
from pipeline.records.foreign.pictures import weighed
from pipeline.records.rows import STEP
from pipeline.records.run_record import OVERFLOW, CallRecord, RunRecord
from pipeline.views.policy import TokenCounter
from pipeline.views.trajectory import Message
from pipeline.worker.cache_account import ServerCache, with_cache_account


def joined(parts: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """Return the parts of each run as one record, by run id; parts come in order."""
    runs: dict[str, list[RunRecord]] = {}
    for part in parts:
        runs.setdefault(part.run_id, []).append(part)
    return {run_id: reduce(_with_part, found) for run_id, found in runs.items()}


def _with_part(run: RunRecord, part: RunRecord) -> RunRecord:
    return replace(
        part,
        messages=run.messages + part.messages,
        calls=run.calls + part.calls,
        decisions=run.decisions + part.decisions,
        tools={**run.tools, **part.tools},
    )


def finished(run: RunRecord, counter: TokenCounter, cache: ServerCache) -> RunRecord:
    """Return the record as it goes to the journal.

    The last answer enters the history, since no list came to hold it; pictures get the weight by
    which prompts grew; the cache columns are those of all runs (docs/methods.md, Cache accounting).
    """
    messages, calls = _with_last_answer(run.messages, run.calls, counter)
    extra = dict(run.extra)
    pictures = {int(index): n for index, n in extra.get("pictures", {}).items()}
    try:
        weighed_messages = weighed(messages, calls, pictures)
    except ValueError as error:
        weighed_messages = list(messages)
        extra["notes"] = [*extra.get("notes", ()), f"pictures weigh nothing here: {error}"]
    ending = _ending(calls)
    failure = calls[-1].error if calls else None
    return replace(
        run,
        exit_status=NOT_RECORDED,
        failure_class=ending,
        failure=failure,
        wall_s=run.finished_at - run.started_at,
        messages=tuple(weighed_messages),
        calls=with_cache_account(calls, weighed_messages, run.tools, cache=cache, counter=counter),
        extra=extra,
    )


def _with_last_answer(
    messages: Sequence[Message], calls: Sequence[CallRecord], counter: TokenCounter
) -> tuple[Sequence[Message], list[CallRecord]]:
    """Return history and calls such that every answer stands in one of the two."""
    last = calls[-1] if calls else None
    if last and last.kind == STEP and last.reply is not None and last.error is None:
        history = History(counter.count, messages=list(messages), step=last.step_index - 1)
        history.reply(last.reply, reasoning=last.reply_reasoning, calls=last.reply_tool_calls)
        messages = history.messages
    roles: Mapping[int, str] = {m.index: m.role for m in messages}
    return messages, [
        replace(call, reply=None, reply_reasoning=None, reply_tool_calls=())
        if call.kind == STEP and roles.get(call.message_count) == "assistant" and not call.error
        else call
        for call in calls
    ]


def _ending(calls: Sequence[CallRecord]) -> FailureClass:
    if calls and (calls[-1].error or "").startswith(OVERFLOW):
        return FailureClass.LIMIT_CONTEXT
    if any(call.answered for call in calls):
        return FailureClass.UNKNOWN_ENDING
    return FailureClass.INFRA_SERVER
