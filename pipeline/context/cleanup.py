"""The cleanup turn: what the model is asked, and which outputs its answer prunes.

The question rides on the last tool result of the turn, since a user message would make some chat
templates drop all earlier reasoning and with it the cached prefix. It is laid over the view for one
call only and never becomes part of the trajectory. When to ask is the policy's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from pipeline.context import prune_tool
from pipeline.context.plan_steps import StepSpan, step_of
from pipeline.context.shown import ShownTokens, shortened
from pipeline.protocols import Ask, AuxRequest, CallKind
from pipeline.records.trajectory import Edit, Edits, Message, Part, Trajectory, shown_content
from pipeline.spec.policy import PlanPrune, PlanPruneCached

OPENING = (
    "You have completed part of your plan. Pause coding for this response and review what you have"
    " worked on. Decide which command outputs you no longer need for the remaining work and the"
    " overall task."
)
NO_QUOTA = "There is no required amount to delete."
COMMAND_CHARS = 60
"""Commands in the listing are cut to this length: the listing is paid for."""


class Answer(Protocol):
    """A reply to an auxiliary call, fresh or recorded."""

    @property
    def content(self) -> str:
        """The reply's text."""
        ...

    @property
    def tool_calls(self) -> Sequence[prune_tool.Call]:
        """The reply's tool calls."""
        ...

    @property
    def completion_tokens(self) -> int:
        """What the reply cost to write, thinking included."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanupForm:
    """How the question is put; the parameters of the arm that concern it."""

    prompt_as: str = "tool_result"
    tool_choice: str = "named"
    plan_step_column: bool = True
    text_mode: bool = False
    """The model makes no tool calls: it is told to answer with one line."""
    max_tokens: int | None = None

    @classmethod
    def of(cls, spec: PlanPrune | PlanPruneCached, *, text_mode: bool) -> Self:
        """Return the form that an arm's parameters ask for."""
        return cls(
            prompt_as=spec.prompt_as,
            tool_choice=spec.tool_choice,
            plan_step_column=spec.plan_step_column,
            text_mode=text_mode,
            max_tokens=spec.max_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneChoice:
    """What an answer came to."""

    chosen: tuple[int, ...]
    """Ids of live outputs to prune, oldest first."""
    ignored: tuple[tuple[str, str], ...]
    """What was asked and not done, with the reason: `unknown`, `already pruned`, `protected`,
    `plan state` or `malformed`."""
    note: str


def listing(
    live: Mapping[int, Message],
    edits: Edits,
    *,
    tokens: ShownTokens,
    spans: Sequence[StepSpan] | None,
) -> str:
    """Return one line an output: id, tokens, plan step (where `spans` are given), command."""
    lines = []
    for number, message in live.items():
        columns = [f"[{number}] {tokens.of_content(message, edits)} tokens"]
        if spans is not None:
            step = step_of(message, spans)
            columns.append("no plan step" if step is None else f"plan step {step}")
        columns.append(shortened(message.command, COMMAND_CHARS))
        lines.append(" · ".join(columns))
    return "\n".join(lines)


def cleanup_prompt(outputs: str, *, text_mode: bool) -> str:
    """Return the question with the listing of the live outputs."""
    how = (
        f"Answer with one line, {prune_tool.NAME} followed by their ids, for example"
        f" `{prune_tool.NAME} 2 5`, or by nothing to keep everything."
        if text_mode
        else f"Call {prune_tool.NAME} with their ids, or with none to keep everything."
    )
    return f"{OPENING} {NO_QUOTA}\n{how}\nOutputs you can still see:\n{outputs}"


def cleanup_request(
    trajectory: Trajectory, edits: Edits, prompt: str, form: CleanupForm
) -> AuxRequest:
    """Return the cleanup call: the current view, with the question on its last result."""
    last = trajectory.messages[-1]
    if form.prompt_as == "user_message":
        question = Edit(
            message_index=len(trajectory.messages),
            part=Part.INSERTED,
            text=prompt,
            reason="cleanup",
        )
    else:
        question = Edit(
            message_index=last.index,
            part=Part.CONTENT,
            text=shown_content(last, edits) + "\n" + prompt,
            reason="cleanup",
        )
    return AuxRequest(
        kind=CallKind.CLEANUP,
        edits=(question,),
        tool_choice=None if form.text_mode else prune_tool.tool_choice(form.tool_choice),
        max_tokens=form.max_tokens,
    )


def answer_to(request: AuxRequest, trajectory: Trajectory, ask: Ask) -> Answer:
    """Return the recorded answer to this call if the trajectory has it, else ask.

    So that a policy decides the same when it is run again over a finished trajectory.
    """
    here = len(trajectory.messages)
    for decision in reversed(trajectory.decisions):
        if decision.message_index < here:
            break
        if decision.message_index == here and decision.kind == request.kind.value:
            return decision
    return ask(request)


def prune_choice(
    answer: prune_tool.PruneAnswer,
    live: Mapping[int, Message],
    known: Mapping[int, Message],
    removed: frozenset[int],
) -> PruneChoice:
    """Return which of the asked ids are pruned and why the others are not.

    Args:
        answer: what the model asked for.
        live: outputs that may be pruned now.
        known: all outputs that ever had an id.
        removed: ids of outputs that are gone already.
    """
    ignored = [(word, "malformed") for word in answer.unusable]
    for number in answer.ids:
        if number in live:
            continue
        if number not in known:
            ignored.append((str(number), "unknown"))
        elif number in removed:
            ignored.append((str(number), "already pruned"))
        else:
            ignored.append((str(number), "protected"))
    chosen = tuple(sorted(number for number in answer.ids if number in live))
    return PruneChoice(chosen=chosen, ignored=tuple(ignored), note=answer.note)
