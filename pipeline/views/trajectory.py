"""A run's append-only history, and the edits that turn it into what the model is shown.

The trajectory is never edited. A view is the trajectory with edits laid over it; the pair is
enough to rebuild any prompt exactly. Policies see only these types, never a chat library's dicts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pipeline.fields.kept import Kept


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call the assistant made, as it was sent."""

    id: str
    name: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of the trajectory, with its text as it arrived."""

    index: int
    step_index: Annotated[int, Kept("0 for system and task, then the step's, from 1")]
    role: Annotated[str, Kept("system, user, assistant or tool")]
    content: Annotated[str, Kept("The text")]
    reasoning: Annotated[str | None, Kept("The assistant's reasoning")] = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Annotated[str | None, Kept("The call this message answers")] = None
    tool: Annotated[str | None, Kept("The tool whose output this is (bash, planctl, ...)")] = None
    command: Annotated[str | None, Kept("The command, or a tool's arguments as JSON")] = None
    returncode: Annotated[
        int | None, Kept("The command's; -1 when it was killed at its time limit")
    ] = None
    n_tokens: Annotated[int, Kept("Content and tool calls, by runs.token_counter", "tokens")] = 0
    reasoning_tokens: Annotated[int, Kept("Of the reasoning, by the same", "tokens")] = 0
    n_lines: Annotated[int, Kept("Lines of the content", "lines")] = 0
    dropped_bytes: Annotated[int, Kept("So much of it", "bytes")] = 0
    undecodable_bytes: Annotated[int, Kept("Of the output, no UTF-8; kept as U+FFFD", "bytes")] = 0
    waited_s: Annotated[float | None, Kept("From the answer that asked to this result", "s")] = None
    output: str | None = None
    """What the action printed, before any template; None where nothing ran or it was not kept."""
    output_start: int | None = None
    """Where `output` begins in `content`; None where `content` does not hold it as it is."""

    @property
    def printed(self) -> str:
        """The raw output of an observation, or all of its text where that is unknown."""
        return self.content if self.output is None else self.output

    @property
    def frame(self) -> tuple[str, str]:
        """What the scaffold wrote before and after the output; empty where unknown."""
        if self.output is None or self.output_start is None:
            return "", ""
        end = self.output_start + len(self.output)
        return self.content[: self.output_start], self.content[end:]

    @property
    def is_observation(self) -> bool:
        """True for the output of an action; a format-error message is not one."""
        return self.tool is not None

    @property
    def is_prunable(self) -> bool:
        """True for an output that an arm may edit: plan results are the plan's only display."""
        return self.tool is not None and self.tool not in PLAN_TOOLS


PLAN_TOOLS = frozenset({"planctl", "prune_observations", "recall"})
"""Tools of the harness itself; their results are never pruned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One assistant message with all its results; format errors belong to no turn."""

    step_index: int
    assistant: Message
    observations: tuple[Message, ...]


class Part(StrEnum):
    """The part of a message that an edit replaces. Values are on disk."""

    CONTENT = "content"
    REASONING = "reasoning"
    """An empty text removes it."""
    TOOL_CALLS = "tool_calls"
    """The text is the whole list as JSON, ids and count unchanged."""
    DROPPED = "dropped"
    """The message is not sent at all."""
    INSERTED = "inserted"
    """A user message with this text is sent before the message of that index (or at the end). An
    empty text takes an insertion back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One recorded decision about what the model is shown."""

    message_index: int
    part: Part
    text: str
    reason: str
    """One word for the table: `elide`, `prune`, `mask`, `summary`, ..."""


RECORDED = "recorded"
"""Reason of what the tool that recorded a session took out of its view by itself."""

SHARED_REASONS = frozenset({"elide", RECORDED})
"""Edits of the scaffold, which all arms share."""

Edits = Mapping[tuple[int, Part], Edit]
"""The edits in force, by message and part."""


def merged(standing: Edits, new: Iterable[Edit]) -> dict[tuple[int, Part], Edit]:
    """Return the edits in force once `new` is laid over `standing`."""
    return {**standing, **{(e.message_index, e.part): e for e in new}}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanEvent:
    """One legal change of the agent's plan."""

    message_index: Annotated[int, Kept("The result message that reports it")]
    step_index: Annotated[int, Kept("Its step")]
    action: Annotated[str, Kept("set, start, complete, add, drop or rename")]
    plan_step: Annotated[int, Kept("The plan step's number, from 1; 0 for set")]
    title: Annotated[str, Kept("The plan step's title")]
    status: Annotated[str, Kept("The plan step's status afterwards")]
    outcome: Annotated[str, Kept("The agent's one line on a completed step")] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The reply to an auxiliary call, kept so that a policy can be run again without a model."""

    kind: str
    message_index: int
    """How many messages the trajectory had when the call was made."""
    call_index: int
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    completion_tokens: int = 0


@dataclass(slots=True)
class Trajectory:
    """Everything that happened in one run, in order. Only `append` adds to it."""

    messages: list[Message] = field(default_factory=list)
    plan_events: list[PlanEvent] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def append(self, messages: Sequence[Message]) -> None:
        """Add messages; an assistant message opens a turn, results join the open one."""
        for message in messages:
            if message.index != len(self.messages):
                raise ValueError(f"message {message.index} appended at {len(self.messages)}")
            self.messages.append(message)
            if message.role == "assistant":
                turn = Turn(step_index=message.step_index, assistant=message, observations=())
                self.turns.append(turn)
            elif message.is_observation and self.turns:
                last = self.turns[-1]
                self.turns[-1] = Turn(
                    step_index=last.step_index,
                    assistant=last.assistant,
                    observations=(*last.observations, message),
                )

    def observations(self) -> Iterator[Message]:
        """Yield the outputs of actions, oldest first."""
        return (m for turn in self.turns for m in turn.observations)


def shown_content(message: Message, edits: Edits) -> str:
    """Return the content the model sees of `message` under `edits`."""
    edit = edits.get((message.index, Part.CONTENT))
    return message.content if edit is None else edit.text


def chat_message(message: Message, edits: Edits) -> dict[str, Any] | None:
    """Return `message` as a chat-completions message under `edits`; None when dropped.

    The one place where a view becomes a prompt: the worker sends it, and the tables are rebuilt
    into the same objects.
    """
    if (message.index, Part.DROPPED) in edits:
        return None
    chat: dict[str, Any] = {"role": message.role, "content": shown_content(message, edits)}
    reasoning = edits.get((message.index, Part.REASONING))
    reasoning_text = message.reasoning if reasoning is None else reasoning.text
    if reasoning_text:
        chat["reasoning"] = reasoning_text
    if message.tool_calls:
        calls = edits.get((message.index, Part.TOOL_CALLS))
        chat["tool_calls"] = (
            tool_calls_as_sent(message.tool_calls) if calls is None else json.loads(calls.text)
        )
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    return chat


def tool_calls_as_sent(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return tool calls in the chat-completions form."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def view_messages(trajectory: Trajectory, edits: Edits) -> list[dict[str, Any]]:
    """Return the messages of the view: the trajectory with `edits` laid over it."""
    shown: list[dict[str, Any]] = []
    for message in trajectory.messages:
        shown += _insertions(message.index, edits)
        chat = chat_message(message, edits)
        if chat is not None:
            shown.append(chat)
    return shown + _insertions(len(trajectory.messages), edits)


def _insertions(index: int, edits: Edits) -> list[dict[str, Any]]:
    inserted = edits.get((index, Part.INSERTED))
    return [{"role": "user", "content": inserted.text}] if inserted and inserted.text else []
