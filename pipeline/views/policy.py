"""What a policy is asked and what it may ask: the interface between an arm and its driver.

A policy never sees a model, a sandbox or a clock. It gets a trajectory, the edits in force, and a
function that answers its questions; live runs, replay and tests each bring their own function.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from pipeline.views.trajectory import Edit, Edits, Message, Trajectory


class CallKind(StrEnum):
    """Why the model was called. Values are on disk."""

    STEP = "step"
    CLEANUP = "cleanup"
    SUMMARY = "summary"
    PRUNE = "prune"
    JUDGE = "judge"
    LINES = "lines"
    """Put to the arm's line pruner and not to the model, so it makes no row of `calls`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedToolCall:
    """A tool call as the model wrote it; the arguments may be no valid JSON."""

    id: str
    name: str
    arguments: str
    lone_surrogates: int = 0
    """Unpaired surrogates in the arguments as received; U+FFFD stands in their place."""


class TokenCounter(Protocol):
    """Counts tokens offline. `name` goes into `runs.token_counter`."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`, special tokens aside."""
        ...


@runtime_checkable
class Tokenizer(TokenCounter, Protocol):
    """A counter that also has the tokens themselves."""

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        """Return `text` with only some of its tokens.

        Args:
            text: the whole.
            chosen: given how many tokens there are, the places of those that stay.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneRequest:
    """What a line pruner is given: one output, as the model would see it."""

    message_index: int
    history: Sequence[Message]
    """Everything before the output."""
    command: str | None
    text: str
    query: str | None = None
    """What the agent is looking for; None where that is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuxRequest:
    """A call that a policy wants made on behalf of its arm."""

    kind: CallKind
    edits: Sequence[Edit] = ()
    """Edits laid over the current view for this call only (the cleanup prompt, for one)."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """A conversation of its own instead of the current view (a summary, for one)."""
    ids: Sequence[int] = ()
    """The outputs that the answer may choose from, for `CallKind.CLEANUP`."""
    tool_choice: str | Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    outputs: Sequence[PruneRequest] = ()
    """What the arm's line pruner is to judge, for `CallKind.LINES`; nothing else is sent then."""
    pruner: str = ""
    """Which pruner that is, with its parameters; the answer of another one does not count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuxReply:
    """The answer to an `AuxRequest`, as kept in the trajectory's `decisions`."""

    kind: CallKind
    content: str
    tool_calls: tuple[RequestedToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    call_index: int = 0
    """Of the call that brought it, or for a line pruner's answer of the one that comes next."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerQuestion:
    """What a policy wants from the server besides the answer to a step call."""

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
