"""What is kept of one finished run.

A `RunRecord` is everything: identity, ending, messages, calls, plan events, decisions. The worker
makes one at the end of a run, the journal keeps it, `rows` turns it into table rows. Neither files
nor the agent are known here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    lcp_exact: bool | None = None
    lcp_block_tokens: int | None = None
    lcp_state_tokens: int | None = None
    spliced_tokens: int | None = None
    new_tokens: int | None = None
    rebilled_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    lone_surrogates: int | None = None
    """Characters of the reply that UTF-8 cannot hold; U+FFFD stands in their place."""
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
    server_answer: str | None = None
    """JSON: what the policy asked the server along with the call (`kind`, `messages`), `answer`."""
    pruner_answer: str | None = None
    """JSON: what the arm's line pruner said of outputs just before the call (`outputs`)."""
    pruner_s: float | None = None
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
    patch: Patch = ""
    """What the agent submitted."""
    limit_patch: Patch | None = None
    """The diff between the commit that the run began at and the tree that a limit left."""
    oversize_patch_bytes: int | None = None
    """Size of a patch, submitted or left at a limit, that was too large to keep."""
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
