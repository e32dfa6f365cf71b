"""Every column of every table: name, type, unit and meaning, said once.

The Arrow schemas and docs/records.md are both made from this. Columns are added and never renamed;
a column that changes its meaning gets a new name.
"""

from dataclasses import dataclass
from typing import Literal

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

_IDENTITY = (
    _C("run_id", "string", "", "The run: readable slug and a hash of its science"),
    _C("sweep", "string", "", "Name of the sweep"),
    _C("benchmark", "string", "", "Name of the benchmark"),
    _C("instance_id", "string", "", "The benchmark task"),
    _C("repo", "string", "", "Repository the task is about"),
    _C("model", "string", "", "Name of the model's config"),
    _C("agent", "string", "", "Name of the agent's config"),
    _C("arm", "string", "", "Name of the arm"),
    _C("seed", "int", "", "Replicate; a pair of arms shares it"),
    _C("block_id", "string", "", "The block: all arms of one instance, claimed together"),
)

RUNS = Table(
    name="runs",
    doc="One row a run that finished, the infrastructure failures that nothing has replaced too.",
    writer="worker (rollout), ingest",
    parts=False,
    columns=(
        *_IDENTITY,
        _C("phase", "int", "", "1, or 2 for an arm that needs another arm's finished runs"),
        _C("attempt", "int", "", "From 1; infrastructure failures before this one came earlier"),
        _C("exit_status", "string", "", "The agent's own word for how it ended"),
        _C("failure_class", "string", "", "How the run ended (failure classes below)"),
        _C("failure", "string", "", "What went wrong, for people: message and traceback"),
        _C("n_steps", "int", "calls", "Step calls that were answered, format errors included"),
        _C("n_calls", "int", "calls", "All calls that were answered"),
        _C("n_counted_calls", "int", "calls", "Of these, with known usage: what sums are over"),
        _C("n_cache_counted_calls", "int", "calls", "Of these, with known cached tokens"),
        _C(
            "input_tokens", "int", "tokens", "Prompt tokens of every call, cleanup and aux included"
        ),
        _C("cached_tokens", "int", "tokens", "Of these, served from cache, as the server reports"),
        _C("output_tokens", "int", "tokens", "Completion tokens of every call, reasoning included"),
        _C("reasoning_tokens", "int", "tokens", "Of these, reasoning"),
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
        _C("loop", "bool", "", "Ten identical calls in a row were seen; a label, not an end"),
        _C("template_dropped_tokens", "int", "tokens", "Reasoning the chat template left out"),
        _C("retry_tokens", "int", "tokens", "Prompt tokens of requests repeated for our failures"),
        _C("wall_s", "float", "s", "First message to last"),
        _C("model_s", "float", "s", "Sum of the calls' latencies"),
        _C("tool_s", "float", "s", "Time in the sandbox's commands"),
        _C("pruner_s", "float", "s", "Time in the arm's line pruner; empty where none was asked"),
        _C("n_pruner_errors", "int", "", "Outputs shown whole because it failed; likewise"),
        _C("gpu_s", "float", "GPU s", "The run's share of the server's busy time"),
        _C("token_counter", "string", "", "What counted messages.n_tokens"),
        _C("evidence", "string", "", "live, sim, synthetic or replay; they never mix"),
        _C("started_at", "float", "unix s", "Start"),
        _C("finished_at", "float", "unix s", "End"),
        _C("worker", "string", "", "The worker attempt that ran it"),
        _C("node", "string", "", "Host it ran on"),
        _C("patch", "string", "", "What the agent submitted, as a diff; empty text if nothing"),
        _C("patch_raw", "bytes", "", "The patch's exact bytes, where they are not UTF-8"),
        _C("patch_sha256", "string", "", "Of the patch's bytes; empty without one"),
        _C(
            "limit_patch",
            "string",
            "",
            "Diff of the tree left at a limit against the first commit; a secondary outcome",
        ),
        _C("limit_patch_raw", "bytes", "", "Its exact bytes, where they are not UTF-8"),
        _C("limit_patch_sha256", "string", "", "Of the limit patch; empty without one"),
        _C("oversize_patch_bytes", "int", "bytes", "Size of a patch over 32 MiB; it is not kept"),
        _C("commit", "string", "", "Commit of the pipeline"),
        _C("versions", "json", "", "Package and server versions"),
        _C("extra", "json", "", "Labels of the writer (probes, flags, imported metadata)"),
        _C("journal", "string", "", "The journal that holds the record"),
        _C("journal_offset", "int", "bytes", "Where in the journal"),
    ),
)

CALLS = Table(
    name="calls",
    doc="One row a request to the model, those that failed for good too.",
    writer="worker (rollout), ingest",
    parts=True,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("call_index", "int", "", "From 0, all kinds counted together"),
        _C("step_index", "int", "", "Step it belongs to, from 1; a cleanup has the next step's"),
        _C("kind", "string", "", "step, cleanup, summary, prune or judge"),
        _C("prompt_tokens", "int", "tokens", "As the server reports; empty without an answer"),
        _C("cached_tokens", "int", "tokens", "Of these, from the server's cache, as it reports"),
        _C("lcp_tokens", "int", "tokens", "Longest prefix shared with an earlier call of the run"),
        _C("lcp_exact", "bool", "", "True: that prefix was found on token ids; else estimated"),
        _C("lcp_block_tokens", "int", "tokens", "The same, rounded down to the cache's block"),
        _C(
            *("lcp_state_tokens", "int", "tokens"),
            "Of it, up to the last whole block of an earlier prompt: what a hybrid model can reuse",
        ),
        _C(
            *("spliced_tokens", "int", "tokens"),
            "Sent before in the same message, wherever it now stands: what splicing could reuse",
        ),
        _C("new_tokens", "int", "tokens", "Outside the prefix and never sent before"),
        _C("rebilled_tokens", "int", "tokens", "Outside the prefix though sent before"),
        _C("completion_tokens", "int", "tokens", "As the server reports, reasoning included"),
        _C("reasoning_tokens", "int", "tokens", "Of these, reasoning"),
        _C("lone_surrogates", "int", "", "Characters of the reply that UTF-8 lacks, now U+FFFD"),
        _C("message_count", "int", "", "Messages of the trajectory when the call was made"),
        _C("view_edits", "json", "", "What this call changed of the view (below)"),
        _C("tools_sha256", "string", "", "The tool list, found in table `tools`"),
        _C("tool_choice", "json", "", "As sent"),
        _C("latency_s", "float", "s", "Request to whole answer"),
        _C("ttft_s", "float", "s", "Request to first token"),
        _C("finish_reason", "string", "", "As the server reports"),
        _C("request_seed", "int", "", "Seed sent; the same for every arm of a pair"),
        _C("temperature", "float", "", "As sent; empty: the model's own setting"),
        _C("max_tokens", "int", "tokens", "As sent"),
        _C("retry_tokens", "int", "tokens", "Prompt tokens of repeated requests before this one"),
        _C("error", "string", "", "Why there is no answer, or why it was unusable"),
        _C("reply", "string", "", "The answer, where no message of the trajectory holds it"),
        _C("reply_tool_calls", "json", "", "Its tool calls, likewise"),
        _C("server_answer", "json", "", "What a policy asked the server beside, and the answer"),
        _C("pruner_answer", "json", "", "What the arm's line pruner said before it, or its errors"),
        _C("pruner_s", "float", "s", "Time the line pruner took for that; not in latency_s"),
        _C("started_at", "float", "unix s", "When the request was sent"),
    ),
)

MESSAGES = Table(
    name="messages",
    doc="One row a message of the trajectory, with the text as it arrived.",
    writer="worker (rollout), ingest",
    parts=True,
    columns=(
        _C("run_id", "string", "", "The run"),
        _C("message_index", "int", "", "From 0: system, task, then the steps'"),
        _C("step_index", "int", "", "0 for system and task, then the step's, from 1"),
        _C("role", "string", "", "system, user, assistant or tool"),
        _C("tool_calls", "json", "", "As sent: id, type, function"),
        _C("tool_call_id", "string", "", "The call this message answers"),
        _C("tool", "string", "", "The tool whose output this is (bash, planctl, ...)"),
        _C("command", "string", "", "The command, or a tool's arguments as JSON"),
        _C("returncode", "int", "", "The command's; -1 when it was killed at its time limit"),
        _C("content", "string", "", "The text"),
        _C("output", "string", "", "The action's raw output, where content lacks it as it is"),
        _C("output_start", "int", "characters", "Where the raw output begins in content"),
        _C("output_length", "int", "characters", "Its length there"),
        _C("reasoning", "string", "", "The assistant's reasoning"),
        _C("n_tokens", "int", "tokens", "Content and tool calls, by runs.token_counter"),
        _C("reasoning_tokens", "int", "tokens", "Of the reasoning, by the same"),
        _C("n_lines", "int", "lines", "Lines of the content"),
        _C("truncated", "bool", "", "Raw output over the byte limit was dropped"),
        _C("dropped_bytes", "int", "bytes", "So much of it"),
        _C("undecodable_bytes", "int", "bytes", "Of the output, no UTF-8; kept as U+FFFD"),
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
        _C("step_index", "int", "", "Its step"),
        _C("message_index", "int", "", "The result message that reports it"),
        _C("action", "string", "", "set, start, complete, add, drop or rename"),
        _C("plan_step", "int", "", "The plan step's number, from 1; 0 for set"),
        _C("title", "string", "", "The plan step's title"),
        _C("status", "string", "", "The plan step's status afterwards"),
        _C("outcome", "string", "", "The agent's one line on a completed step"),
    ),
)

_GRADE = (
    _C("run_id", "string", "", "The run"),
    _C("instance_id", "string", "", "The benchmark task"),
    _C("attempt", "int", "", "From 1"),
    _C("resolved", "bool", "", "The official verdict; empty where grading itself failed"),
    _C("grade_class", "string", "", "What grading came to (grade classes below)"),
    _C("patch_exists", "bool", "", "There was something to grade"),
    _C("patch_applied", "bool", "", "It applied and left a gradable log"),
    _C("f2p_passed", "int", "tests", "FAIL_TO_PASS tests that pass"),
    _C("f2p_total", "int", "tests", "FAIL_TO_PASS tests"),
    _C("p2p_passed", "int", "tests", "PASS_TO_PASS tests that pass"),
    _C("p2p_total", "int", "tests", "PASS_TO_PASS tests"),
    _C("harness_version", "string", "", "Version of swebench"),
    _C("image_digest", "string", "", "Digest of the image graded in"),
    _C("patch_sha256", "string", "", "Of the patch graded; stale where it is not the run's"),
    _C("seconds", "float", "s", "Time the grading took"),
    _C("report", "json", "", "The official per-instance report"),
    _C("failure", "string", "", "What went wrong, for people"),
    _C("timeouts", "int", "", "Tries that ran into the time limit"),
    _C("eval_environment", "string", "", "How its build tools came: official, wheels, installed"),
    _C("apply_command", "string", "", "The official command that applied the patch"),
    _C("test_exit_code", "int", "", "Of the test command; empty: the log does not get that far"),
    _C("n_statuses", "int", "tests", "With a status in the log; empty: the log is not complete"),
    _C("test_settings", "string", "", "Files of the patch that change how tests are run"),
    _C("finished_at", "float", "unix s", "End"),
    _C("worker", "string", "", "The worker attempt that graded"),
    _C("node", "string", "", "Host it ran on"),
    _C("journal", "string", "", "The journal that holds the record"),
    _C("journal_offset", "int", "bytes", "Where in the journal"),
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
    columns=(
        _C("worker", "string", "", "The worker attempt whose server this is"),
        _C("sampled_at", "float", "unix s", "When"),
        _C("running", "int", "requests", "In the batch"),
        _C("waiting", "int", "requests", "In the queue"),
        _C("kv_usage", "float", "fraction", "Of the KV cache in use"),
        _C("prompt_tokens", "int", "tokens", "Counter"),
        _C("generation_tokens", "int", "tokens", "Counter"),
        _C("prefix_queries", "int", "tokens", "Counter: looked up in the prefix cache"),
        _C("prefix_hits", "int", "tokens", "Counter: found there"),
        _C("preemptions", "int", "requests", "Counter"),
        _C("gpu_util", "float", "fraction", "Mean over the server's GPUs"),
        _C("gpu_mem", "float", "bytes", "Sum over the server's GPUs"),
    ),
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
    columns=(
        *(c for c in _IDENTITY if c.name != "sweep"),
        _C("phase", "int", "", "1, or 2 for an arm that needs another arm's finished runs"),
        _C("position", "int", "", "Place in the order of execution, from 0"),
        _C("cell_digest", "string", "", "The cell's science, hashed; the lock has it in full"),
        _C("row_sha256", "string", "", "Of the instance's row as canonical JSON"),
        _C("evidence", "string", "", "live, sim or synthetic"),
        _C("extension", "int", "", "0, or the relaunch that added the run"),
    ),
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
