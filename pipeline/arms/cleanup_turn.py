"""The cleanup turn: what the model is asked, and which outputs its answer prunes.

The question is appended to the last tool result of the turn, since a user message would make some
chat templates drop all earlier reasoning and with it the cached prefix. Only one call shows it, and
it never becomes part of the trajectory. The policy decides when to ask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science
from pipeline.views import prune_tool
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.plan_steps import StepSpan, completed_in, step_of, step_spans, steps_left
from pipeline.views.policy import Ask, AuxRequest, CallKind
from pipeline.views.prune_tool import PruneAnswer
from pipeline.views.shown import ShownTokens, acted_turns, shortened
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn, shown_content

REVIEW = (
    "Pause coding for this response and review what you have worked on. Decide which command"
    " outputs you no longer need for the remaining work and the overall task."
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
    def needs_plan(self) -> bool:
        """True where the model is asked when a plan step ends."""
        return self.trigger == "plan_step"

    @property
    def keeps_note(self) -> bool:
        """True where a note of the cleanup stays in the view."""
        return False

    @property
    def acts_anytime(self) -> bool:
        """True where `prune_observations` acts in an ordinary turn too."""
        return False

    @property
    def opening(self) -> str:
        """The first sentence of the question: what has just happened."""
        if self.trigger == "every_k":
            return "You have worked on the task for a while."
        return "You have completed part of your plan."

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tool with which the model answers."""
        if not self.has_cleanup:
            return ()
        moment = (
            f"every {self.every_k} turns"
            if self.trigger == "every_k"
            else "after a plan step is completed"
        )
        asked = None if self.acts_anytime else moment
        return (prune_tool.prune_tool(keeps_note=self.keeps_note, asked=asked),)

    def without_plan(self, every_turns: int) -> Self:
        """Return the arm with cleanups after so many turns, where it waits for plan steps."""
        if not self.needs_plan:
            return self
        return replace(self, trigger="every_k", every_k=every_turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneChoice:
    """What an answer prunes."""

    chosen: tuple[int, ...]
    """Ids of live outputs, oldest first."""
    note: str = ""
    """What the model still needs of them."""


def listing(
    live: Mapping[int, Message],
    edits: Edits,
    *,
    tokens: ShownTokens,
    spans: Sequence[StepSpan] | None,
) -> str:
    """Return one line per output: id, tokens, plan step (where `spans` are given), command."""
    lines = []
    for number, message in live.items():
        columns = [f"[{number}] {tokens.of_content(message, edits)} tokens"]
        if spans is not None:
            step = step_of(message, spans)
            columns.append("no plan step" if step is None else f"plan step {step}")
        columns.append(shortened(message.command, COMMAND_CHARS))
        lines.append(" · ".join(columns))
    return "\n".join(lines)


class CleanupQuestion:
    """The question as an arm puts it."""

    def __init__(self, spec: CleanupTurn, context: PolicyContext, tokens: ShownTokens) -> None:
        """Take the arm's parameters, the run's mode, and what counts the outputs."""
        self._spec, self._text_mode, self._tokens = spec, context.text_mode, tokens

    def prompt(self, trajectory: Trajectory, standing: Edits, live: Mapping[int, Message]) -> str:
        """Return the question with the listing of the live outputs."""
        has_steps = self._spec.plan_step_column and bool(trajectory.plan_events)
        spans = step_spans(trajectory) if has_steps else None
        outputs = listing(live, standing, tokens=self._tokens, spans=spans)
        how = self._in_text() if self._text_mode else self._in_call()
        opening = f"{self._spec.opening} {REVIEW} {NO_QUOTA}"
        return f"{opening}\n{how}\nOutputs you can still see:\n{outputs}"

    def _in_text(self) -> str:
        return (
            f"Answer with one line, {prune_tool.NAME} followed by their ids, for example"
            f" `{prune_tool.NAME} 2 5`, or by nothing to keep everything."
        )

    def _in_call(self) -> str:
        note = " Write into its note what you still need of them." if self._spec.keeps_note else ""
        return f"Call {prune_tool.NAME} with their ids, or with none to keep everything.{note}"

    def ask(
        self, trajectory: Trajectory, standing: Edits, live: Mapping[int, Message], ask: Ask
    ) -> PruneChoice:
        """Ask the model once what to prune of `live`, and return its choice."""
        prompt = self.prompt(trajectory, standing, live)
        reply = ask(self._request(trajectory, standing, prompt, tuple(live)))
        answer = prune_tool.prune_answer(reply.content, reply.tool_calls)
        return choice_of(answer, live)

    def _request(
        self, trajectory: Trajectory, standing: Edits, prompt: str, ids: Sequence[int]
    ) -> AuxRequest:
        """Return the cleanup call: the current view, with the question on its last result."""
        last = trajectory.messages[-1]
        if self._spec.prompt_as == "user_message":
            index, part, text = len(trajectory.messages), Part.INSERTED, prompt
        else:
            index, part = last.index, Part.CONTENT
            text = shown_content(last, standing) + "\n" + prompt
        return AuxRequest(
            kind=CallKind.CLEANUP,
            edits=(Edit(message_index=index, part=part, text=text, reason="cleanup"),),
            ids=ids,
            tool_choice=(
                None if self._text_mode else prune_tool.tool_choice(self._spec.tool_choice)
            ),
            max_tokens=self._spec.max_tokens,
        )


def choice_of(answer: PruneAnswer, live: Mapping[int, Message]) -> PruneChoice:
    """Return which live outputs an answer prunes; other ids are ignored."""
    chosen = tuple(sorted(number for number in answer.ids if number in live))
    return PruneChoice(chosen=chosen, note=answer.note)


def cleanup_due(spec: CleanupTurn, turn: Turn, trajectory: Trajectory) -> bool:
    """Return whether the turn that just ended calls for a cleanup.

    Completing the plan's last step does not, since nothing is left to save. A turn that submitted
    ends the run before any policy is asked.
    """
    if spec.trigger == "every_k":
        return len(acted_turns(trajectory)) % spec.every_k == 0
    return bool(completed_in(turn, trajectory)) and steps_left(trajectory) != 0
