"""The seams: what the parts of a run ask of each other.

Every Protocol here has at least two implementations. Nothing in this module does anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pipeline.views.policy import PruneRequest, RequestedToolCall

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
        """Write `data` to `path`; a relative path is under `workdir`.

        Raises `PathError` where nothing can be written.
        """
        ...

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the file at `path`.

        Raises `FileNotFoundError` where there is none, `PathError` where it cannot be read.
        """
        ...

    def stop(self) -> None:
        """Kill every process of the sandbox and remove its files. May be called twice."""
        ...


class SandboxFactory(Protocol):
    """Starts sandboxes of one kind on this node."""

    def start(self, row: Mapping[str, Any], *, purpose: Purpose) -> Sandbox:
        """Return a fresh sandbox for a benchmark row; its `workdir` column says where."""
        ...

    def janitor(self) -> int:
        """Remove what dead workers left on this node; return how many sandboxes went."""
        ...

    def digest(self, row: Mapping[str, Any]) -> str | None:
        """Return the digest of the image behind `row`, if there is an image."""
        ...


# --- the model -----------------------------------------------------------------------------------
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
    is_view: bool = True
    """The run's history; False: a conversation beside it."""


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
    reused_tokens: int | None = None
    """With `cache: splice`: prompt tokens whose keys lay in place."""
    rotated_tokens: int | None = None
    """Those whose keys were moved."""
    recomputed_tokens: int | None = None
    """Those that were computed, new text included."""


class Completer(Protocol):
    """A model server, or something that answers like one."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply.

        Raises:
            ServerError: no answer after every retry.
            ContextOverflowError: the prompt does not fit the window.
        """
        ...


# --- line pruners --------------------------------------------------------------------------------
class PrunerError(Exception):
    """A line pruner could not judge an output: it is shown whole, and that is recorded."""


class LinePruner(Protocol):
    """Judges the lines of an output as it arrives. Safe to use from many runs' threads."""

    def prune(self, request: PruneRequest) -> Sequence[bool] | None:
        """Return for each line whether it stays; None where there is no reason to prune.

        Raises:
            PrunerError: it cannot tell; the run goes on with the whole output.
        """
        ...
