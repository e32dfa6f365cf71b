"""What a person sees of one run: from its id to why it ended as it did.

Owns the gathering of a run's record, grade and places, and their text. Everything comes from the
journals, or from the tables where a journal is gone; the HTML page is the analysis's.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.planning.display import duration
from pipeline.plural import plural
from pipeline.records.json_columns import json_text
from pipeline.records.layout import Layout, grade_log_member
from pipeline.records.plan import read_plan
from pipeline.records.rebuild import recorded_run, sent_calls
from pipeline.records.rows import call_rows, message_rows, plan_event_rows, run_row
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.states import RunState, States

MAX_OUTPUT_LINES = 20
MARKS = {"done": "x", "active": ">", "dropped": "-"}
"""What stands before a plan step in each state; nothing before one that is to be done."""


class NoRunError(ValueError):
    """There is nothing to show; the message says why and what to name instead."""


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """One run and where it left traces."""

    state: RunState
    record: RunRecord
    places: Mapping[str, str]
    """What is kept, and the file it is in."""


def shown_run(layout: Layout, run_id: str) -> ShownRun:
    """Return the run called `run_id`, or the only one whose id begins so.

    Raises:
        NoRunError: no run is called so, several are, or it has no record yet.
        LockError: the folder's plan is damaged.
    """
    states = States(layout)
    recorded = states.refresh()
    # A folder that `ingest` or `proxy` wrote has no plan.
    planned = [run.run_id for run in read_plan(layout.plan)] if layout.plan.exists() else []
    state = states.state_of(_named(run_id, dict.fromkeys([*planned, *recorded])))
    if state.failure_class is None:
        raise NoRunError(
            f"{state.run_id} has no record yet: it is planned or running; "
            f"python -m pipeline.status {layout.root} shows what is running"
        )
    record = recorded_run(layout, state)
    return ShownRun(state=state, record=record, places=dict(_places(layout, state, record)))


def _named(beginning: str, run_ids: Collection[str]) -> str:
    if beginning in run_ids:
        return beginning
    found = [run_id for run_id in run_ids if run_id.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoRunError(
            f"there is no run {beginning}; python -m pipeline.status lists failed runs, and the "
            "table `runs` has all"
        )
    some = "\n".join(f"  {run_id}" for run_id in found[:10])
    raise NoRunError(f"{len(found)} runs begin with {beginning}; name one in full:\n{some}")


def _places(layout: Layout, state: RunState, record: RunRecord) -> Iterator[tuple[str, str]]:
    if state.journal is not None:
        journal = layout.journal(state.journal)
        lost = "" if journal.exists() else " (gone; shown from the tables)"
        yield "journal", f"{journal} at byte {state.offset}{lost}"
    for path in sorted(layout.logs.glob(f"{record.worker}*.log")):
        kind = path.suffixes[0].strip(".") if len(path.suffixes) > 1 else "worker"
        yield f"{kind} log", str(path)
    if state.grade_attempts:
        member = grade_log_member(state.run_id, "submitted", state.grade_attempts)
        yield "test log", f"{layout.logs}/grade-*.tar, member {member}"


# --- text ----------------------------------------------------------------------------------------
def run_text(shown: ShownRun) -> str:
    """Return the page of a run, in plain text."""
    record = shown.record
    parts = [
        _head(shown),
        _section("plan", _plan_lines(record)),
        _section("calls", _call_lines(record.calls)),
        _section("last output", _last_output(record)),
        _section("why it ended so", (record.failure or "").rstrip().splitlines()),
        _section("where", (f"{name}: {place}" for name, place in shown.places.items())),
    ]
    return "\n\n".join(part for part in parts if part)


def call_text(record: RunRecord, call_index: int) -> str:
    """Return exactly what a call sent, a header before each message.

    Raises:
        NoRunError: the run made no such call.
    """
    return "\n".join(
        f"--- {number} {message['role']}{_of_call(message)}\n{_body(message)}"
        for number, message in enumerate(call_messages(record, call_index))
    )


def call_messages(record: RunRecord, call_index: int) -> list[dict[str, Any]]:
    """Return the messages that a call sent, equal to the request's.

    Raises:
        NoRunError: the run made no such call.
    """
    if not 0 <= call_index < len(record.calls):
        raise NoRunError(
            f"{record.run_id} made {plural(len(record.calls), 'call')}, counted from 0"
        )
    sent = sent_calls(list(message_rows(record)), list(call_rows(record)))
    return next(call.messages for call in sent if call.call_index == call_index)


def run_data(shown: ShownRun) -> dict[str, Any]:
    """Return the run as JSON data: its rows of the tables, its grade and its places."""
    record, state = shown.record, shown.state
    return {
        "run": run_row(record, journal=state.journal or "", offset=state.offset),
        "grade_class": state.grade_class,
        "resolved": state.resolved,
        "calls": list(call_rows(record)),
        "messages": list(message_rows(record)),
        "plan_events": list(plan_event_rows(record)),
        "places": dict(shown.places),
    }


def _head(shown: ShownRun) -> str:
    state, record = shown.state, shown.record
    names = (record.instance_id, record.model, record.agent, record.arm)
    took = "" if record.wall_s is None else f", {duration(record.wall_s)}"
    grade = "" if state.grade_class is None else f"; graded {state.grade_class}"
    steps = sum(call.kind == "step" for call in record.calls)
    again = "; to be repeated by the next launch" if state.to_run else ""
    return (
        f"{record.run_id}\n"
        f"{', '.join(names)}, seed {record.seed}; attempt {record.attempt}, {record.worker} on "
        f"{record.node}\n"
        f"ended {record.failure_class} ({record.exit_status}) after {steps} steps{took}{grade}"
        f"{again}"
    )


def _plan_lines(record: RunRecord) -> Iterator[str]:
    """Yield each step of the plan with its last state."""
    steps = {}
    for event in record.plan_events:
        if event.plan_step:
            steps[event.plan_step] = event
    for number, event in sorted(steps.items()):
        outcome = f": {event.outcome}" if event.outcome else ""
        yield f"[{MARKS.get(event.status, ' ')}] {number}. {event.title}{outcome}"


_COLUMNS = "{:>4} {:>4}  {:<8}{:>9}{:>9}{:>8}{:>8}  {:<12} {}"


def _call_lines(calls: Sequence[CallRecord]) -> Iterator[str]:
    if calls:
        yield _COLUMNS.format(
            *("call", "step", "kind", "prompt", "cached", "answer", "s", "finish", "edits, error")
        ).rstrip()
    for index, call in enumerate(calls):
        notes = [f"{n} {reason}" for reason, n in Counter(e.reason for e in call.edits).items()]
        notes += [call.error.splitlines()[0][:120]] if call.error else []
        yield _COLUMNS.format(
            index,
            call.step_index,
            call.kind,
            _number(call.prompt_tokens),
            _number(call.cached_tokens),
            _number(call.completion_tokens),
            "?" if call.latency_s is None else f"{call.latency_s:.1f}",
            call.finish_reason or "",
            ", ".join(notes),
        ).rstrip()


def _last_output(record: RunRecord) -> Iterator[str]:
    outputs = [m for m in record.messages if m.is_observation]
    if not outputs:
        return
    last = outputs[-1]
    yield f"$ {last.command} (step {last.step_index}, return code {last.returncode})"
    lines = last.printed.splitlines()
    if len(lines) > MAX_OUTPUT_LINES:
        yield f"[{len(lines) - MAX_OUTPUT_LINES} lines before]"
    yield from lines[-MAX_OUTPUT_LINES:]


def _section(title: str, lines: Iterator[str] | Sequence[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"{title}\n{body}" if body else ""


def _of_call(message: Mapping[str, Any]) -> str:
    found = message.get("tool_call_id")
    return f" ({found})" if found else ""


def _body(message: Mapping[str, Any]) -> str:
    parts = []
    if message.get("reasoning"):
        parts.append(f"[reasoning] {message['reasoning']}")
    if message.get("content"):
        parts.append(str(message["content"]))
    if message.get("tool_calls"):
        parts.append(json_text(message["tool_calls"]))
    return "\n".join(parts) + "\n"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
