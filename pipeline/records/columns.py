"""The tables: which record fields they keep, and the columns that are worked out from them.

A record's field that is marked `Kept` is a column and says there what it means; only what no field
holds as it is (sums, JSON, places) is declared here. The Arrow schemas and docs/records.md are made
from both. Columns are added and never renamed; one that changes its meaning gets a new name.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from pipeline.fields.kept import kept_fields
from pipeline.records.grade_record import GradeRecord, ServerSample
from pipeline.records.plan import PlannedRun
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.views.trajectory import Message, PlanEvent

Type = Literal["string", "int", "float", "bool", "json", "bytes"]
"""`json` is a string that holds JSON text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Empty where unknown: no column uses 0 or -1 for that."""

    name: str
    type: Type
    unit: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: who writes it, how it is kept, and its columns."""

    name: str
    doc: str
    writer: str
    parts: bool
    """True: one file a journal. False: one file, replaced whole."""
    columns: tuple[Column, ...]


_C = Column

_TYPES: dict[type, Type] = {str: "string", int: "int", float: "float", bool: "bool"}


def columns_of(record_type: type) -> tuple[Column, ...]:
    """Return the columns that a record's fields are."""
    columns = []
    for name, (held, mark) in kept_fields(record_type).items():
        plain: Type = _TYPES[str if issubclass(held, Enum) else held]
        columns.append(_C(name, "json" if mark.json else plain, mark.unit, mark.doc))
    return tuple(columns)


_PLACE = (
    _C("journal", "string", "", "The journal that holds the record"),
    _C("journal_offset", "int", "bytes", "Where in the journal"),
)

RUNS = Table(
    name="runs",
    doc="One row per finished run, including infrastructure failures that have not been run again.",
    writer="worker (rollout), ingest, proxy",
    parts=False,
    columns=(
        *columns_of(RunRecord),
        _C("n_steps", "int", "calls", "Step calls that were answered, format errors included"),
        _C("n_calls", "int", "calls", "All calls that were answered"),
        _C("n_counted_calls", "int", "calls", "Of these, with known usage: what sums are over"),
        _C("n_cache_counted_calls", "int", "calls", "Of these, with known cached tokens"),
        _C(
            "input_tokens", "int", "tokens", "Prompt tokens of every call, cleanup and aux included"
        ),
        _C("cached_tokens", "int", "tokens", "Of these, served from cache, as the server reports"),
        _C("reused_tokens", "int", "tokens", "Sum over calls; see `calls`"),
        _C("rotated_tokens", "int", "tokens", "Sum over calls; see `calls`"),
        _C("recomputed_tokens", "int", "tokens", "Sum over calls; see `calls`"),
        _C("output_tokens", "int", "tokens", "Completion tokens of every call, reasoning included"),
        _C("reasoning_tokens", "int", "tokens", "Of these, reasoning"),
        _C(
            "shared_input_tokens",
            "int",
            "tokens",
            "The part of input_tokens in calls of `forked_from`, not sent again; empty: ran fresh",
        ),
        _C("shared_output_tokens", "int", "tokens", "The same of output_tokens"),
        _C("cleanup_input_tokens", "int", "tokens", "The part of input_tokens in cleanup calls"),
        _C("cleanup_output_tokens", "int", "tokens", "The part of output_tokens in cleanup calls"),
        _C("aux_input_tokens", "int", "tokens", "The part in summary, prune and judge calls"),
        _C("aux_output_tokens", "int", "tokens", "The same of output_tokens"),
        _C("peak_context_tokens", "int", "tokens", "Largest prompt of any call"),
        _C("peak_step_context_tokens", "int", "tokens", "Largest prompt of a step call"),
        _C("n_observations", "int", "", "Outputs of actions, the plan tool's included"),
        _C("n_pruned", "int", "", "Observations whose text an arm took away at least once"),
        _C(
            "pruned_tokens", "int", "tokens", "Of these, as shown just before; placeholders not off"
        ),
        _C("n_cleanups", "int", "calls", "Cleanup calls that were answered"),
        _C("n_ignored_ids", "int", "", "Ids that cleanups named in vain (calls.ignored_ids)"),
        _C("n_format_errors", "int", "calls", "Replies that could not be carried out"),
        _C("n_calls_as_text", "int", "calls", "Of these, with a tool call as text and none as one"),
        _C("retry_tokens", "int", "tokens", "Prompt tokens of requests repeated for our failures"),
        _C("model_s", "float", "s", "Sum of the calls' latencies"),
        _C("pruner_s", "float", "s", "Time in the arm's line pruner; empty where none was asked"),
        _C("n_pruner_errors", "int", "", "Outputs shown whole because it failed; likewise"),
        _C("patch", "string", "", "What the agent submitted, as a diff; empty text if nothing"),
        _C("patch_raw", "bytes", "", "The patch's exact bytes, where they are not UTF-8"),
        _C(
            "patch_sha256",
            "string",
            "",
            "Of the bytes of the patch, or of the answer; empty without one",
        ),
        _C(
            "limit_patch",
            "string",
            "",
            "Diff of the tree left at a limit against the first commit; a secondary outcome",
        ),
        _C("limit_patch_raw", "bytes", "", "Its exact bytes, where they are not UTF-8"),
        _C("limit_patch_sha256", "string", "", "Of the limit patch; empty without one"),
        _C("versions", "json", "", "Package and server versions"),
        _C("extra", "json", "", "Labels of the writer (probes, flags, imported metadata)"),
        *_PLACE,
    ),
)

CALLS = Table(
    name="calls",
    doc="One row a request to the model, those that failed for good too.",
    writer="worker (rollout), ingest, proxy",
    parts=True,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("call_index", "int", "", "From 0, all kinds counted together"),
        *columns_of(CallRecord),
        _C("view_edits", "json", "", "What this call changed of the view (below)"),
        _C("tool_choice", "json", "", "As sent"),
        _C("reply_tool_calls", "json", "", "Its tool calls, likewise"),
    ),
)

MESSAGES = Table(
    name="messages",
    doc="One row a message of the trajectory, with the text as it arrived.",
    writer="worker (rollout), ingest, proxy",
    parts=True,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("message_index", "int", "", "From 0: system, task, then the steps'"),
        *columns_of(Message),
        _C("tool_calls", "json", "", "As sent: id, type, function"),
        _C("output", "string", "", "The action's raw output, where content lacks it as it is"),
        _C("output_start", "int", "characters", "Where the raw output begins in content"),
        _C("output_length", "int", "characters", "Its length there"),
        _C("truncated", "bool", "", "Raw output over the byte limit was dropped"),
        _C("pruned_at_call", "int", "", "First call whose view lacked its text through the arm"),
        _C("prune_reason", "string", "", "The edit's reason at that call"),
        _C("replaced_by", "string", "", "What the last view showed instead; empty text if dropped"),
    ),
)

PLAN_EVENTS = Table(
    name="plan_events",
    doc="One row a legal change of the agent's plan.",
    writer="worker (rollout)",
    parts=True,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("event_index", "int", "", "From 0"),
        _C("call_index", "int", "", "The step call that asked for it"),
        *columns_of(PlanEvent),
    ),
)

_GRADE = (
    *columns_of(GradeRecord),
    _C("test_settings", "string", "", "Files of the patch that change how tests are run"),
    *_PLACE,
)

GRADES = Table(
    name="grades",
    doc="One row a graded run: the patch the agent submitted.",
    writer="worker (grade)",
    parts=False,
    columns=_GRADE,
)

LIMIT_GRADES = Table(
    name="limit_grades",
    doc="The same for `limit_patch`, the secondary outcome of runs that ended at a limit.",
    writer="worker (grade)",
    parts=False,
    columns=_GRADE,
)

SERVER = Table(
    name="server",
    doc="Metrics of the model servers, sampled while they ran. Counters are since server start.",
    writer="worker (rollout)",
    parts=True,
    columns=columns_of(ServerSample),
)

TOOLS = Table(
    name="tools",
    doc="The tool lists that calls name by hash.",
    writer="worker (rollout)",
    parts=False,
    columns=(
        _C("tools_sha256", "string", "", "SHA-256 of the text"),
        _C("tools", "json", "", "The list as sent"),
    ),
)

SUPERSEDED = Table(
    name="superseded",
    doc="Records that are not the run's result: kept, flagged, and never counted.",
    writer="compaction",
    parts=False,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("record", "string", "", "run, grade or limit_grade"),
        _C("reason", "string", "", "infra_retried, duplicate or stale_patch"),
        _C("attempt", "int", "", "Its attempt"),
        _C("failure_class", "string", "", "Its failure class or grade class"),
        _C("patch_sha256", "string", "", "Of its patch"),
        _C("input_tokens", "int", "tokens", "What it spent"),
        _C("finished_at", "float", "unix s", "When it ended"),
        _C("journal", "string", "", "The journal that holds it"),
        _C("journal_offset", "int", "bytes", "Where in the journal"),
    ),
)

PLAN = Table(
    name="plan",
    doc="What is to be run, one row a run, in execution order (`plan.parquet`).",
    writer="launch",
    parts=False,
    columns=columns_of(PlannedRun),
)

TABLES = {
    table.name: table
    for table in (
        RUNS,
        CALLS,
        MESSAGES,
        PLAN_EVENTS,
        GRADES,
        LIMIT_GRADES,
        SERVER,
        TOOLS,
        SUPERSEDED,
    )
}
"""The tables of `tables/`, by name. The plan lies outside."""
