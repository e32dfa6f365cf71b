"""The seams: what the parts of a run ask of each other.

Every Protocol here has at least two implementations. Nothing in this module does anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from pipeline.records.trajectory import Edit, Edits, Message, Trajectory

# --- sandboxes -----------------------------------------------------------------------------------
WHOLE_LIMIT_BYTES = 32 << 20
"""Longest output that is kept whole where that was asked for: a submitted patch, or a diff."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """What a command left behind. A command that failed is a result, not an error."""

    output: str
    """stdout and stderr as one ordered stream, decoded as UTF-8 with replacement characters."""
    returncode: int
    """The shell's, 128 and more for a signal; -1 when the command was killed at a limit."""
    timed_out: bool = False
    limit: Literal["memory", "processes"] | None = None
    """Which limit of the sandbox the command was killed at, the time limit aside."""
    dropped_bytes: int = 0
    """Bytes beyond the output limit, dropped from the middle of the stream."""
    stream_bytes: int = 0
    """Bytes of the whole stream, the dropped ones included."""
    undecodable_bytes: int = 0
    """Bytes of the output that are no UTF-8, shown as replacement characters."""
    whole: bytes | None = None
    """The whole stream, where it was asked for and has at most `WHOLE_LIMIT_BYTES`."""
    wall_s: float = 0.0


Purpose = Literal["rollout", "grade"]


class Sandbox(Protocol):
    """One started, isolated copy of an instance's repository.

    All methods raise `SandboxError` when the sandbox itself is broken and `DiskError` when its
    disk is full; such an error is never the agent's and never shown to the model.
    """

    workdir: str
    """Where the repository lies, as commands see it (`/testbed` in official images)."""

    def execute(
        self, command: str, *, timeout_s: float, whole_after: bytes | None = None
    ) -> CommandResult:
        """Run `command` with bash in `workdir`; at the time limit the whole tree is killed.

        An output whose first line is `whole_after` comes as bytes too, in `whole`. A command that
        no shell can be given as it is (a NUL byte, half of a surrogate pair) is not run: the
        result says so.
        """
        ...

    def upload(self, data: bytes, path: str) -> None:
        """Write `data` to `path`; a relative path is under `workdir`."""
        ...

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the file at `path`; `FileNotFoundError` if absent."""
        ...

    def stop(self) -> None:
        """Kill every process of the sandbox and remove its files. May be called twice."""
        ...


class SandboxFactory(Protocol):
    """Starts sandboxes of one kind on this node."""

    def start(self, row: Mapping[str, Any], *, purpose: Purpose) -> Sandbox:
        """Return a fresh sandbox for a benchmark row (SWE-bench v5 columns)."""
        ...

    def janitor(self) -> int:
        """Remove what dead workers left on this node; return how many sandboxes went."""
        ...

    def digest(self, row: Mapping[str, Any]) -> str | None:
        """Return the digest of the image behind `row`, if there is an image."""
        ...


# --- the model -----------------------------------------------------------------------------------
class CallKind(StrEnum):
    """Why the model was called. Values are on disk."""

    STEP = "step"
    CLEANUP = "cleanup"
    SUMMARY = "summary"
    PRUNE = "prune"
    JUDGE = "judge"
    LINES = "lines"
    """Asked of the arm's line pruner and not of the model: no row of `calls`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One request to a chat-completions server.

    Messages arrive encoded: each is turned into JSON once, when it enters the trajectory or is
    edited, so that a call costs the client a join and not a walk over the whole history.
    """

    messages: Sequence[bytes]
    """Each a JSON object, as the chat-completions interface wants it."""
    tools: bytes = b"[]"
    """JSON array; the same on every call of a run, since it is part of the cached prefix."""
    tool_choice: str | Mapping[str, Any] | None = None
    seed: int
    temperature: float | None = None
    """None: the model's own sampling settings."""
    max_tokens: int
    cache_salt: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields, such as `structured_outputs`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedToolCall:
    """A tool call as the model wrote it; the arguments may be no valid JSON."""

    id: str
    name: str
    arguments: str
    lone_surrogates: int = 0
    """Halves of surrogate pairs in the arguments as they came; U+FFFD stands in their place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatReply:
    """One answer, with what it cost. Unknown counts are None, never 0."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[RequestedToolCall, ...] = ()
    lone_surrogates: int = 0
    """Halves of surrogate pairs in the whole reply; U+FFFD stands in their place."""
    finish_reason: str | None
    prompt_tokens: int
    cached_tokens: int | None = None
    completion_tokens: int
    reasoning_tokens: int | None = None
    prompt_token_ids: Sequence[int] | None = None
    completion_token_ids: Sequence[int] | None = None
    latency_s: float
    ttft_s: float | None = None
    retry_tokens: int = 0
    """Prompt tokens of requests that failed on our side before this one succeeded."""
    started_at: float
    """Unix time, seconds."""
    server_params: Mapping[str, Any] | None = None
    """What a connector in the server attached (`kv_transfer_params`), such as line scores."""


class Completer(Protocol):
    """A model server, or something that answers like one."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply.

        Raises:
            ServerError: no answer after every retry.
            ContextOverflowError: the prompt does not fit the window.
        """
        ...


class TokenCounter(Protocol):
    """Counts tokens offline. `name` goes into `runs.token_counter`."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`, special tokens aside."""
        ...


# --- policies ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class AuxRequest:
    """A call that a policy wants made on behalf of its arm."""

    kind: CallKind
    edits: Sequence[Edit] = ()
    """Edits laid over the current view for this call only (the cleanup prompt, for one)."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """A conversation of its own instead of the current view (a summary, for one)."""
    tool_choice: str | Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    outputs: Sequence["PruneRequest"] = ()
    """What the arm's line pruner is to judge, for `CallKind.LINES`; nothing else is sent then."""
    pruner: str = ""
    """Which pruner that is, its parameters included: another one's answer is no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuxReply:
    """The answer to an `AuxRequest`, as kept in the trajectory's `decisions`."""

    kind: CallKind
    content: str
    tool_calls: tuple[RequestedToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0


Ask = Callable[[AuxRequest], AuxReply]


class Policy(Protocol):
    """An arm's rule for what the model still sees.

    `decide` is called once before every step call. It is pure: the same trajectory, standing
    edits and answers give the same result. It returns only what is new; an edit for a message
    part that has one replaces it, anything else stays as it stands.
    """

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits to add before the next step call."""
        ...


# --- line pruners --------------------------------------------------------------------------------
class PrunerError(Exception):
    """A line pruner could not judge an output: it is shown whole, and that is recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneRequest:
    """What a line pruner is given: one output, as the model would see it."""

    message_index: int
    history: Sequence[Message]
    """Everything before the output."""
    command: str | None
    text: str
    query: str | None = None
    """What the agent is looking for; None where nobody knows."""


class LinePruner(Protocol):
    """Judges the lines of an output as it arrives. Safe to use from many runs' threads."""

    def prune(self, request: PruneRequest) -> Sequence[bool] | None:
        """Return for each line whether it stays; None where there is no reason to prune.

        Raises:
            PrunerError: it cannot tell; the run goes on with the whole output.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerQuestion:
    """What a policy wants of the server beside the answer to a step call."""

    kind: str
    """Of the decision that keeps the server's answer."""
    messages: Sequence[int]
    """The messages it is about."""
    params: Mapping[str, Any]
    """Sent as `kv_transfer_params`."""


@runtime_checkable
class AsksServer(Protocol):
    """A policy that needs something from inside the server, such as scores of new outputs.

    The answer comes with the step call's own, and is kept in the trajectory's `decisions` (JSON:
    `messages`, `answer`) before `decide` runs again.
    """

    def server_question(self, trajectory: Trajectory, standing: Edits) -> ServerQuestion | None:
        """Return what to send along with the next step call."""
        ...


@runtime_checkable
class KeepsFiles(Protocol):
    """A policy whose edits name files in the sandbox, for the agent to read what it no longer sees.

    They are written before the step call that shows the edits.
    """

    def kept_files(self, trajectory: Trajectory, edits: Sequence[Edit]) -> Mapping[str, str]:
        """Return the text of every file that `edits` name, by its path outside the repository."""
        ...
