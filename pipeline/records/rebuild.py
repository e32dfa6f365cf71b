"""From rows back to what happened: any call's messages, and the whole trajectory.

The tables promise that what was sent can be rebuilt exactly; this is where the promise is kept.
It uses the same function that made the prompts (`trajectory.view_messages`). Rows come from the
tables or straight from a record; statistics over them are made elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.fields.kept import kept_fields
from pipeline.plural import plural
from pipeline.records.failure import FailureClass
from pipeline.records.journal import frame_at, run_of
from pipeline.records.json_columns import edit_from, json_text, tool_calls_from
from pipeline.records.layout import Layout
from pipeline.records.patch import patch_in
from pipeline.records.rows import Row
from pipeline.records.run_record import OVERFLOW, PRUNER_DECISION, CallRecord, RunRecord
from pipeline.records.schema import check_version
from pipeline.records.states import RunState
from pipeline.views.trajectory import (
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
    raise KeyError(
        f"run {run_id} has {plural(len(tables.calls), 'call')}, none with index {call_index}"
    )


def run_tables(run_id: str, layout: Layout) -> RunTables:
    """Return all rows of one run.

    Raises:
        KeyError: the tables have no such run; compact first.
    """
    path = layout.table_file("runs")
    found = _rows_of(path, [run_id]) if path.exists() else []
    if not found:
        raise KeyError(
            f"no run {run_id} in {path}; python -m pipeline.compact {layout.root} may bring it"
        )
    (run,) = found
    parts = {
        name: sorted(_part_rows(layout, name, run["journal"], [run_id]), key=lambda r: r[order])
        for name, order in _PART_ORDER.items()
    }
    return RunTables(run=run, **parts)


def all_run_tables(layout: Layout) -> Iterator[RunTables]:
    """Yield the rows of every run in the tables, a bounded amount in memory at a time."""
    path = layout.table_file("runs")
    runs = _rows_of(path) if path.exists() else []
    by_journal = groupby(sorted(runs, key=lambda r: r["journal"]), key=lambda r: r["journal"])
    for journal, members in by_journal:
        for some in _portions(list(members), layout.table_part("messages", journal)):
            run_ids = [run["run_id"] for run in some]
            parts = {
                name: _by_run(_part_rows(layout, name, journal, run_ids), order)
                for name, order in _PART_ORDER.items()
            }
            for run in some:
                yield RunTables(run=run, **{n: p.get(run["run_id"], ()) for n, p in parts.items()})


_PORTION_BYTES = 128 << 20
"""Of messages held at once, as the file says; as rows they take several times as much."""


def _portions(runs: list[Row], messages: Path) -> Iterator[list[Row]]:
    """Yield the runs of a journal in portions whose messages fit into memory together."""
    n_bytes = 0
    if messages.exists():
        metadata = pq.read_metadata(messages)
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        n_bytes = sum(group.total_byte_size for group in groups)
    n_portions = max(1, -(-n_bytes // _PORTION_BYTES))
    step = max(1, -(-len(runs) // n_portions))
    for start in range(0, len(runs), step):
        yield runs[start : start + step]


_PART_ORDER = {
    "calls": "call_index",
    "messages": "message_index",
    "plan_events": "event_index",
}


def _by_run(rows: list[Row], order: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["run_id"], []).append(row)
    return {run_id: sorted(group, key=lambda r: r[order]) for run_id, group in groups.items()}


def _part_rows(layout: Layout, name: str, journal: str, run_ids: Sequence[str]) -> list[Row]:
    path = layout.table_part(name, journal)
    return _rows_of(path, run_ids) if path.exists() else []


def _rows_of(path: Path, run_ids: Sequence[str] | None = None) -> list[Row]:
    wanted = None if run_ids is None else pc.field("run_id").isin(list(run_ids))
    table: pa.Table = pq.read_table(path, filters=wanted)
    check_version(table.schema, str(path))
    return list(table.to_pylist())


def tool_lists(layout: Layout) -> dict[str, str]:
    """Return the tool lists that calls name by hash."""
    path = layout.table_file("tools")
    return {r["tools_sha256"]: r["tools"] for r in _rows_of(path)} if path.exists() else {}


def recorded_run(layout: Layout, state: RunState) -> RunRecord:
    """Return the record that is a run's result, from the tables where its journal is gone.

    Raises:
        KeyError: neither journal nor tables hold it.
    """
    if state.journal is not None and state.offset is not None:
        with suppress(FileNotFoundError):
            return run_of(frame_at(layout.journal(state.journal), state.offset))
    return record_from(run_tables(state.run_id, layout), tool_lists(layout))


def record_from(tables: RunTables, tools: Mapping[str, str]) -> RunRecord:
    """Return the record that the rows were made from.

    Args:
        tables: The run's rows.
        tools: All tool lists, as `tool_lists` gives them.
    """
    run = tables.run
    calls = tuple(map(call_from, tables.calls))
    used = {c.tools_sha256 for c in calls if c.tools_sha256 is not None}
    return RunRecord(
        **{**_kept_in(run, RunRecord), "failure_class": FailureClass(run["failure_class"])},
        patch=patch_in(run) or "",
        limit_patch=patch_in(run, "limit_patch"),
        versions=json.loads(run["versions"] or "{}"),
        extra=json.loads(run["extra"] or "{}"),
        messages=tuple(map(message_from, tables.messages)),
        plan_events=tuple(map(event_from, tables.plan_events)),
        decisions=tuple(_decisions(tables.calls)),
        calls=calls,
        tools={sha: text for sha, text in tools.items() if sha in used},
    )


def _kept_in(row: Row, record_type: type) -> Row:
    """Return the fields of a record that its row holds; the others keep their defaults.

    Tables that an older version wrote lack the columns that came later.
    """
    return {n: row[n] for n in kept_fields(record_type) if row.get(n) is not None}


def call_from(row: Row) -> CallRecord:
    """Return the call of a row of `calls`."""
    changes = json.loads(row["view_edits"] or "{}")
    own = changes.get("messages")
    choice = row["tool_choice"]
    return CallRecord(
        **_kept_in(row, CallRecord),
        edits=tuple(map(edit_from, changes.get("edits", ()))),
        transient=tuple(map(edit_from, changes.get("transient", ()))),
        messages=None if own is None else tuple(own),
        tool_choice=None if choice is None else json.loads(choice),
        reply_tool_calls=tool_calls_from(row["reply_tool_calls"]),
    )


def trajectory_from(tables: RunTables) -> Trajectory:
    """Return the trajectory of a run, its plan events and decisions included."""
    trajectory = Trajectory(
        plan_events=[event_from(row) for row in tables.plan_events],
        decisions=list(_decisions(tables.calls)),
    )
    trajectory.append([message_from(row) for row in tables.messages])
    return trajectory


def message_from(row: Row) -> Message:
    """Return the message of a row of `messages`."""
    return Message(
        index=row["message_index"],
        tool_calls=tool_calls_from(row["tool_calls"]),
        output=_output_from(row),
        output_start=row.get("output_start"),
        **_kept_in(row, Message),
    )


def _output_from(row: Row) -> str | None:
    start, length = row.get("output_start"), row.get("output_length")
    if start is None or length is None:
        return row.get("output")
    content: str = row["content"]
    return content[start : start + length]


def event_from(row: Row) -> PlanEvent:
    """Return the plan event of a row of `plan_events`."""
    return PlanEvent(**_kept_in(row, PlanEvent))


def _decisions(calls: Sequence[Row]) -> Iterator[Decision]:
    """Yield what policies decided on, in the order of the calls."""
    for row in calls:
        if row.get("pruner_answer") is not None:
            yield pruner_decision_from(row)
        if is_decision(row):
            yield decision_from(row)
        if row.get("server_answer") is not None:
            yield server_decision_from(row)


def server_decision_from(row: Row) -> Decision:
    """Return the decision of a call along with which a policy asked the server something."""
    answer = json.loads(row["server_answer"])
    kind = answer.pop("kind")
    return Decision(
        kind=kind,
        message_index=row["message_count"],
        call_index=row["call_index"],
        content=json_text(answer),
    )


def pruner_decision_from(row: Row) -> Decision:
    """Return the decision of a call before which the arm's line pruner was asked."""
    return Decision(
        kind=PRUNER_DECISION,
        message_index=row["message_count"],
        call_index=row["call_index"],
        content=row["pruner_answer"],
    )


def is_decision(row: Row) -> bool:
    """True for a call that a policy decided on: answered, or without room for an answer."""
    had_no_room = (row["error"] or "").startswith(OVERFLOW)
    return row["kind"] != "step" and (row["prompt_tokens"] is not None or had_no_room)


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
