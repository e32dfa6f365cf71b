"""From rows back to what happened: any call's messages, and the whole trajectory.

The tables promise that what was sent can be rebuilt exactly; this is where the promise is kept.
It uses the same function that made the prompts (`trajectory.view_messages`). Rows come from the
tables or straight from a record; statistics over them are made elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.records.layout import Layout
from pipeline.records.run_record import Row, edit_from, tool_calls_from
from pipeline.records.schema import check_version
from pipeline.records.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    PlanEvent,
    Trajectory,
    merged,
    view_messages,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentCall:
    """What one call sent, and the edits in force when it did."""

    call_index: int
    kind: str
    messages: list[dict[str, Any]]
    standing: Mapping[tuple[int, Part], Edit]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTables:
    """The rows of one run, in order."""

    run: Row
    calls: Sequence[Row]
    messages: Sequence[Row]
    plan_events: Sequence[Row]


def sent_calls(messages: Sequence[Row], calls: Sequence[Row]) -> Iterator[SentCall]:
    """Yield what each call sent, in order, from the rows of one run."""
    history = [message_from(row) for row in messages]
    prefix = Trajectory()
    standing: dict[tuple[int, Part], Edit] = {}
    for row in calls:
        changes = json.loads(row["view_edits"] or "{}")
        standing = merged(standing, map(edit_from, changes.get("edits", ())))
        transient = map(edit_from, changes.get("transient", ()))
        prefix.append(history[len(prefix.messages) : row["message_count"]])
        own = changes.get("messages")
        view = view_messages(prefix, merged(standing, transient)) if own is None else own
        yield SentCall(
            call_index=row["call_index"], kind=row["kind"], messages=view, standing=standing
        )


def messages_of_call(run_id: str, call_index: int, layout: Layout) -> list[dict[str, Any]]:
    """Return the messages that a call sent, equal to the request's.

    Raises:
        KeyError: the tables have no such run or call.
    """
    tables = run_tables(run_id, layout)
    for sent in sent_calls(tables.messages, tables.calls):
        if sent.call_index == call_index:
            return sent.messages
    raise KeyError(f"run {run_id} has {len(tables.calls)} calls, none with index {call_index}")


def run_tables(run_id: str, layout: Layout) -> RunTables:
    """Return all rows of one run.

    Raises:
        KeyError: the tables have no such run; compact first.
    """
    path = layout.table_file("runs")
    found = _rows_of(path, run_id) if path.exists() else []
    if not found:
        raise KeyError(
            f"no run {run_id} in {path}; python -m pipeline.compact {layout.root} may bring it"
        )
    (run,) = found
    part = {
        name: _part_rows(layout, name, run["journal"], run_id)
        for name in ("calls", "messages", "plan_events")
    }
    return RunTables(
        run=run,
        calls=sorted(part["calls"], key=lambda r: r["call_index"]),
        messages=sorted(part["messages"], key=lambda r: r["message_index"]),
        plan_events=sorted(part["plan_events"], key=lambda r: r["event_index"]),
    )


def _part_rows(layout: Layout, name: str, journal: str, run_id: str) -> list[Row]:
    path = layout.table_part(name, journal)
    return _rows_of(path, run_id) if path.exists() else []


def _rows_of(path: Any, run_id: str) -> list[Row]:
    table: pa.Table = pq.read_table(path, filters=pc.field("run_id") == run_id)
    check_version(table.schema, str(path))
    return list(table.to_pylist())


def trajectory_from(tables: RunTables) -> Trajectory:
    """Return the trajectory of a run, its plan events and decisions included."""
    trajectory = Trajectory(
        plan_events=[event_from(row) for row in tables.plan_events],
        decisions=[decision_from(row) for row in tables.calls if is_decision(row)],
    )
    trajectory.append([message_from(row) for row in tables.messages])
    return trajectory


_MESSAGE_FIELDS = (
    *("step_index", "role", "content", "reasoning", "tool_call_id", "tool", "command"),
    *("returncode", "n_tokens", "reasoning_tokens", "n_lines", "dropped_bytes"),
)


def message_from(row: Row) -> Message:
    """Return the message of a row of `messages`."""
    return Message(
        index=row["message_index"],
        tool_calls=tool_calls_from(row["tool_calls"]),
        **{name: row[name] for name in _MESSAGE_FIELDS},
    )


_EVENT_FIELDS = (
    *("message_index", "step_index", "action", "plan_step", "title", "status", "outcome"),
)


def event_from(row: Row) -> PlanEvent:
    """Return the plan event of a row of `plan_events`."""
    return PlanEvent(**{name: row[name] for name in _EVENT_FIELDS})


def is_decision(row: Row) -> bool:
    """True for an answered call whose reply a policy decided on."""
    return row["kind"] != "step" and row["prompt_tokens"] is not None


def decision_from(row: Row) -> Decision:
    """Return the decision of a row of `calls`."""
    return Decision(
        kind=row["kind"],
        message_index=row["message_count"],
        call_index=row["call_index"],
        content=row["reply"] or "",
        tool_calls=tool_calls_from(row["reply_tool_calls"]),
        completion_tokens=row["completion_tokens"] or 0,
    )
