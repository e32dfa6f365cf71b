"""The cleanup turn: what the model is asked, and which outputs its answer prunes.

The question rides on the last tool result of the turn, since a user message would make some chat
templates drop all earlier reasoning and with it the cached prefix. It is laid over the view for one
call only and never becomes part of the trajectory. When to ask is the policy's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from pipeline.arms.parameters import Parameters
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science
from pipeline.views import prune_tool
from pipeline.views.plan_steps import StepSpan, completed_in, step_of, step_spans, steps_left
from pipeline.views.policy import Ask, AuxRequest, CallKind
from pipeline.views.prune_tool import PruneAnswer
from pipeline.views.shown import ShownTokens, acted_turns, is_removed, output_ids, shortened
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn, shown_content

OPENING = (
    "You have completed part of your plan. Pause coding for this response and review what you have"
    " worked on. Decide which command outputs you no longer need for the remaining work and the"
    " overall task."
)
NO_QUOTA = "There is no required amount to delete."
COMMAND_CHARS = 60
"""Commands in the listing are cut to this length: the listing is paid for."""


@dataclass(frozen=True, kw_only=True)
class CleanupTurn(Parameters):
    """What arms with a cleanup turn have in common: when the model is asked, and how."""

    trigger: Science[Literal["plan_step", "every_k"]] = "plan_step"
    every_k: Science[Count] = 10
    """Turns between cleanups, for `trigger: every_k`."""
    prompt_as: Science[Literal["tool_result", "user_message"]] = "tool_result"
    tool_choice: Science[Literal["named", "required", "auto"]] = "named"
    protect_last_turns: Science[Natural] = 1
    plan_step_column: Science[bool] = True
    max_tokens: Science[Count | None] = None
    """Limit of the cleanup's answer; None: the model's own."""

    @property
    def has_cleanup(self) -> bool:
        """True: the harness asks the model what it no longer needs."""
        return True

    @property
    def tools(self) -> tuple[str, ...]:
        """The tool with which the model answers."""
        return (prune_tool.NAME,) if self.has_cleanup else ()

    def without_plan(self, every_turns: int) -> Self:
        """Return the arm with cleanups after so many turns, where it waits for plan steps."""
        if self.trigger == "every_k":
            return self
        return replace(self, trigger="every_k", every_k=every_turns)


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
    def of(cls, spec: CleanupTurn, *, text_mode: bool) -> Self:
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
    trajectory: Trajectory, edits: Edits, prompt: str, ids: Sequence[int], form: CleanupForm
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
        ids=ids,
        tool_choice=None if form.text_mode else prune_tool.tool_choice(form.tool_choice),
        max_tokens=form.max_tokens,
    )


def prune_choice(
    answer: PruneAnswer,
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


def cleanup_due(spec: CleanupTurn, turn: Turn, trajectory: Trajectory) -> bool:
    """Return whether the turn that just ended calls for a cleanup.

    Completing the plan's last step does not: nothing is left to save. A turn that submitted ends
    the run before any policy is asked.
    """
    if spec.trigger == "every_k":
        return len(acted_turns(trajectory)) % spec.every_k == 0
    return bool(completed_in(turn, trajectory)) and steps_left(trajectory) != 0


def asked(
    trajectory: Trajectory,
    standing: Edits,
    live: Mapping[int, Message],
    form: CleanupForm,
    tokens: ShownTokens,
    ask: Ask,
) -> PruneChoice:
    """Return what the model wants pruned of `live`, by one cleanup call."""
    spans = step_spans(trajectory) if form.plan_step_column else None
    outputs = listing(live, standing, tokens=tokens, spans=spans)
    prompt = cleanup_prompt(outputs, text_mode=form.text_mode)
    answer = ask(cleanup_request(trajectory, standing, prompt, tuple(live), form))
    return judged(
        prune_tool.prune_answer(answer.content, answer.tool_calls), trajectory, standing, live
    )


def judged(
    answer: PruneAnswer,
    trajectory: Trajectory,
    standing: Edits,
    live: Mapping[int, Message],
) -> PruneChoice:
    """Return the answer with what cannot be done set apart."""
    known = output_ids(trajectory)
    removed = frozenset(k for k, m in known.items() if is_removed(m, standing))
    return prune_choice(answer, live, known, removed)
