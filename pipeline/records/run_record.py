"""What is kept of one finished run.

A `RunRecord` is everything: identity, ending, messages, calls, plan events, decisions. The worker
makes one at the end of a run, the journal keeps it, `rows` turns it into table rows. Neither files
nor the agent are known here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pipeline.fields.kept import Kept
from pipeline.records.failure import FailureClass
from pipeline.records.patch import Patch, patch_bytes
from pipeline.views.trajectory import Decision, Edit, Message, PlanEvent, ToolCall, Trajectory


def text_sha256(text: str) -> str:
    """Return the SHA-256 of `text` in hex, which names patches and tool lists."""
    return hashlib.sha256(patch_bytes(text)).hexdigest()


OVERFLOW = "overflow: "
"""How the `error` of a call begins that found no room in the window."""


PRUNER_DECISION = "lines"
"""Kind of the decision that keeps a line pruner's answer; a `CallKind` value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One request to the model. `call_index` is its place in `RunRecord.calls`.

    `edits`, `transient` and `messages` say what was sent: see docs/records.md on `view_edits`.
    """

    step_index: Annotated[int, Kept("Step it belongs to, from 1; a cleanup has the next step's")]
    kind: Annotated[str, Kept("step, cleanup, summary, prune or judge")]
    message_count: Annotated[int, Kept("Messages of the trajectory when the call was made")]
    edits: tuple[Edit, ...] = ()
    """The edits first in force at this call; they stay in force for all later calls."""
    transient: tuple[Edit, ...] = ()
    """Edits laid over the view for this call only."""
    messages: tuple[Mapping[str, Any], ...] | None = None
    """A conversation of its own, sent instead of the view."""
    prompt_tokens: Annotated[
        int | None, Kept("As the server reports; empty without an answer", "tokens")
    ] = None
    cached_tokens: Annotated[
        int | None, Kept("Of these, from the server's cache, as it reports", "tokens")
    ] = None
    cache_write_tokens: Annotated[
        int | None, Kept("Of these, written to the server's cache, as it reports", "tokens")
    ] = None
    cache_write_1h_tokens: Annotated[
        int | None,
        Kept(
            "Of those, to be kept for an hour and billed so; empty where it is not said", "tokens"
        ),
    ] = None
    lcp_tokens: Annotated[
        int | None, Kept("Longest prefix shared with an earlier call of the run", "tokens")
    ] = None
    lcp_exact: Annotated[
        bool | None, Kept("True: that prefix was found on token ids; else estimated")
    ] = None
    lcp_block_tokens: Annotated[
        int | None, Kept("The same, rounded down to the cache's block", "tokens")
    ] = None
    lcp_state_tokens: Annotated[
        int | None,
        Kept(
            "Of it, up to the last whole block of an earlier prompt: what a hybrid model can reuse",
            "tokens",
        ),
    ] = None
    spliced_tokens: Annotated[
        int | None,
        Kept(
            "Sent before in the same message, wherever it now stands: what splicing could reuse",
            "tokens",
        ),
    ] = None
    reused_tokens: Annotated[
        int | None, Kept("With `cache: splice`: of the prompt, keys that lay in place", "tokens")
    ] = None
    rotated_tokens: Annotated[int | None, Kept("Keys moved behind an edit", "tokens")] = None
    recomputed_tokens: Annotated[
        int | None, Kept("Computed for this call, new text included", "tokens")
    ] = None
    new_tokens: Annotated[
        int | None, Kept("Outside the prefix and never sent before", "tokens")
    ] = None
    rebilled_tokens: Annotated[
        int | None, Kept("Outside the prefix though sent before", "tokens")
    ] = None
    completion_tokens: Annotated[
        int | None, Kept("As the server reports, reasoning included", "tokens")
    ] = None
    reasoning_tokens: Annotated[int | None, Kept("Of these, reasoning", "tokens")] = None
    lone_surrogates: Annotated[
        int | None, Kept("Characters of the reply that UTF-8 lacks, now U+FFFD")
    ] = None
    tools_sha256: Annotated[str | None, Kept("The tool list, found in table `tools`")] = None
    tool_choice: str | Mapping[str, Any] | None = None
    latency_s: Annotated[float | None, Kept("Request to whole answer", "s")] = None
    ttft_s: Annotated[float | None, Kept("Request to first token", "s")] = None
    finish_reason: Annotated[str | None, Kept("As the server reports")] = None
    served_model: Annotated[
        str | None, Kept("As a session log names it call by call; empty: the run's model")
    ] = None
    request_seed: Annotated[int | None, Kept("Seed sent; the same for every arm of a pair")] = None
    temperature: Annotated[float | None, Kept("As sent; empty: the model's own setting")] = None
    max_tokens: Annotated[int | None, Kept("As sent", "tokens")] = None
    retry_tokens: Annotated[
        int, Kept("Prompt tokens of repeated requests before this one", "tokens")
    ] = 0
    error: Annotated[str | None, Kept("Why there is no answer, or why it was unusable")] = None
    reply: Annotated[
        str | None, Kept("The answer, where no message of the trajectory holds it")
    ] = None
    reply_reasoning: Annotated[str | None, Kept("Its reasoning, likewise")] = None
    reply_tool_calls: tuple[ToolCall, ...] = ()
    ignored_ids: Annotated[
        str | None,
        Kept(
            "What a cleanup's answer named in vain: ids not offered, words that are no id",
            json=True,
        ),
    ] = None
    server_answer: Annotated[
        str | None, Kept("What a policy asked the server beside, and the answer", json=True)
    ] = None
    pruner_answer: Annotated[
        str | None, Kept("What the arm's line pruner said before it, or its errors", json=True)
    ] = None
    pruner_s: Annotated[
        float | None, Kept("Time the line pruner took for that; not in latency_s", "s")
    ] = None
    started_at: Annotated[float | None, Kept("When the request was sent", "unix s")] = None

    @property
    def answered(self) -> bool:
        """True where the server answered, usably or not: the call was billed."""
        return self.prompt_tokens is not None or self.error is None or self.reply is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """Everything of one finished run. `run_rows` and its siblings turn it into table rows."""

    run_id: Annotated[str, Kept("The run: readable slug and a hash of its science")]
    sweep: Annotated[str, Kept("Name of the sweep")]
    benchmark: Annotated[str, Kept("Name of the benchmark")]
    instance_id: Annotated[str, Kept("The benchmark task")]
    repo: Annotated[str, Kept("Repository the task is about")]
    model: Annotated[str, Kept("Name of the model's config")]
    agent: Annotated[str, Kept("Name of the agent's config")]
    arm: Annotated[str, Kept("Name of the arm")]
    seed: Annotated[int, Kept("Replicate; a pair of arms shares it")]
    block_id: Annotated[str, Kept("The block: all arms of one instance, claimed together")]
    phase: Annotated[int, Kept("1, or 2 for an arm that needs another arm's finished runs")] = 1
    attempt: Annotated[int, Kept("From 1; infrastructure failures before this one came earlier")]
    exit_status: Annotated[str, Kept("The agent's own word for how it ended")]
    failure_class: Annotated[FailureClass, Kept("How the run ended (failure classes below)")]
    failure: Annotated[str | None, Kept("What went wrong, for people: message and traceback")] = (
        None
    )
    patch: Patch = ""
    """What the agent submitted, where that is a patch."""
    answer: Annotated[
        str | None, Kept("What the agent submitted, where that is a text (agent.submit=answer)")
    ] = None
    limit_patch: Patch | None = None
    """The diff between the commit that the run began at and the tree that a limit left."""
    oversize_patch_bytes: Annotated[
        int | None, Kept("Size of a patch over 32 MiB; it is not kept", "bytes")
    ] = None
    loop: Annotated[bool, Kept("Ten identical calls in a row were seen; a label, not an end")] = (
        False
    )
    template_dropped_tokens: Annotated[
        int | None, Kept("Reasoning the chat template left out", "tokens")
    ] = None
    wall_s: Annotated[float | None, Kept("First message to last", "s")] = None
    tool_s: Annotated[float | None, Kept("Time in the sandbox's commands", "s")] = None
    gpu_s: Annotated[
        float | None,
        Kept("The run's share of the server's busy time; empty with `forked_from`", "GPU s"),
    ] = None
    token_counter: Annotated[str, Kept("What counted messages.n_tokens")]
    forked_from: Annotated[
        str | None, Kept("The run that this one begins with; empty: it ran fresh")
    ] = None
    forked_at_call: Annotated[
        int | None,
        Kept("First call of its own; n_calls: the arm never acted, the outcome is that run's"),
    ] = None
    fork_difference: Annotated[
        str | None, Kept("Why it ran fresh although it was to begin with another run")
    ] = None
    evidence: Annotated[str, Kept("live, sim, synthetic or replay; they never mix")]
    started_at: Annotated[float, Kept("Start", "unix s")]
    finished_at: Annotated[float, Kept("End", "unix s")]
    worker: Annotated[str, Kept("The worker attempt that ran it")]
    node: Annotated[str, Kept("Host it ran on")]
    commit: Annotated[str | None, Kept("Commit of the pipeline")] = None
    versions: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    plan_events: tuple[PlanEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """Tool lists as JSON text, by their `text_sha256`."""

    @property
    def submission(self) -> str:
        """What is graded: the answer of a run that submits one, else the patch."""
        return self.patch if self.answer is None else self.answer

    @property
    def patch_sha256(self) -> str | None:
        """Hash of the submission; None without one."""
        return text_sha256(self.submission) if self.submission else None

    @property
    def limit_patch_sha256(self) -> str | None:
        """Hash of the limit patch; None without one."""
        return text_sha256(self.limit_patch) if self.limit_patch else None

    def trajectory(self) -> Trajectory:
        """Return the run's history."""
        trajectory = Trajectory(plan_events=list(self.plan_events), decisions=list(self.decisions))
        trajectory.append(self.messages)
        return trajectory
