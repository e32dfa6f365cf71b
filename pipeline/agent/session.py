"""One run as a scaffold drives it: history, view, policy, calls, tools and limits.

The session owns everything that is the same on every scaffold. A scaffold says what it adds to the
history, asks for the next step, and has actions carried out; the arm's policy is asked before every
step, and the scaffold never learns which one it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.agent.arm_tool import ArmTool
from pipeline.agent.caller import Caller, RequestIdentity
from pipeline.agent.encoded_view import EncodedView
from pipeline.agent.ending import EndedError, at_limit
from pipeline.agent.plan_tool import PlanTool
from pipeline.agent.policy_turn import PolicyTurn, Upload
from pipeline.agent.shared_prefix import SharedPrefix
from pipeline.agent.tool import Action, Tool, ToolResult
from pipeline.plural import plural
from pipeline.protocols import ChatReply, Completer, LinePruner, Sandbox
from pipeline.records.failure import ContextOverflowError, NodeError
from pipeline.records.run_record import CallRecord
from pipeline.records.unusable import FORMAT
from pipeline.spec.agent import AgentSpec
from pipeline.spec.model import ModelSpec
from pipeline.views.elide import REASON as ELIDE
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.policy import Policy, TokenCounter
from pipeline.views.shown import reasoning_edit
from pipeline.views.trajectory import Edit, Message, Part, PlanEvent, ToolCall, Trajectory

Elide = Callable[[Message], Edit | None]
"""The shortening of very long outputs that every arm shares."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmParts:
    """What an arm brings to a run."""

    policy: Policy
    plan: bool
    """Whether the agent has `planctl`."""
    instructions: str = ""
    """What the arm adds to the system message."""
    tools: Sequence[OfferedTool] = ()
    """The tools that the arm adds to the list."""
    pruner: LinePruner | None = None
    """Judges the lines of outputs, for arms that ask one."""
    asks_focus: bool = False
    """Whether the command tool takes the question that the pruner needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """The model of a run, and how it is reached."""

    spec: ModelSpec
    completer: Completer
    counter: TokenCounter
    """Counts the tokens of single messages."""
    identity: RequestIdentity


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """The time, and whether the worker must go."""

    now: Callable[[], float]
    """Unix seconds."""
    should_stop: Callable[[], bool] = lambda: False


class Session:
    """One run under way."""

    def __init__(
        self,
        *,
        agent: AgentSpec,
        model: ServedModel,
        arm: ArmParts,
        tools: Sequence[Tool],
        elide: Elide,
        upload: Upload,
        watch: Watch,
        prefix: SharedPrefix | None = None,
    ) -> None:
        """Open the session.

        Args:
            agent: limits, and whether replies may ask for several actions.
            model: who answers.
            arm: the treatment.
            tools: the scaffold's own; the plan's and the arm's follow them in the list.
            elide: shortens outputs as they arrive.
            upload: writes the files that an arm's edits name.
            watch: clock and stop signal.
            prefix: the run that this one begins with; its answers come through the completer.
        """
        self.agent, self.arm, self._prefix = agent, arm, prefix
        self.loop = False
        """Whether one call was made `loop_length` times in a row."""
        self.tool_s = 0.0
        """Seconds spent in tools so far."""
        self._model, self._counter, self._elide, self._watch = (
            model.spec,
            model.counter,
            elide,
            watch,
        )
        self._view = EncodedView(model.counter)
        arm_tools = [ArmTool(tool, self.trajectory) for tool in arm.tools]
        offered = [*tools, *([PlanTool()] if arm.plan else []), *arm_tools]
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in offered}
        """Every tool of the run by name, in the order of the request's list."""
        self._caller = Caller(
            model=model.spec,
            completer=model.completer,
            counter=model.counter,
            view=self._view,
            tools=[tool.schema for tool in offered],
            parallel_tool_calls=agent.parallel_tool_calls,
            identity=model.identity,
        )
        self._turn = PolicyTurn(
            arm.policy,
            arm.pruner,
            view=self._view,
            caller=self._caller,
            upload=upload,
            now=watch.now,
        )
        self.started_at = self._answered_at = watch.now()
        self._n_steps = 0
        self._last_actions: list[tuple[str, str]] = []
        self._n_identical = 0

    @property
    def trajectory(self) -> Trajectory:
        """Everything that happened so far."""
        return self._view.trajectory

    @property
    def system_template(self) -> str:
        """The system message's template: the agent's, about the plan, and the arm's own."""
        parts = [self.agent.plan_instructions if self.arm.plan else "", self.arm.instructions]
        text = self.agent.system_template
        for part in filter(None, parts):
            text = f"{text.rstrip()}\n\n{part}"
        return text

    @property
    def calls(self) -> list[CallRecord]:
        """The calls made so far, failed ones included."""
        return self._caller.calls

    @property
    def tool_lists(self) -> dict[str, str]:
        """The tool list as JSON text, by its hash; empty in text mode."""
        return self._caller.tool_lists

    @property
    def has_tool_calls(self) -> bool:
        """False for a model without tool calls: what it wants stands in its text."""
        return self._caller.has_tools

    # --- the history ------------------------------------------------------------------------------
    def say(self, role: str, content: str) -> None:
        """Add a system or user message."""
        self._append(role, content)

    def take(self, reply: ChatReply) -> None:
        """Add the model's reply."""
        calls = tuple(
            # Chat templates parse the arguments again, and an empty text is no JSON.
            ToolCall(id=c.id, name=c.name, arguments=c.arguments or "{}")
            for c in reply.tool_calls
        )
        message = self._append(
            "assistant", reply.content, reasoning=reply.reasoning or None, tool_calls=calls
        )
        if message.reasoning and not self.agent.keeps_reasoning:
            self._turn.put_in_force([reasoning_edit(message, ELIDE)])

    def refuse(self, reply: ChatReply, why: str) -> None:
        """Keep a reply that cannot be used: it was paid for, and enters no history."""
        self._caller.amend(error=f"{FORMAT}{why}", reply=reply)

    def observe(
        self,
        action: Action,
        content: str,
        result: ToolResult | None = None,
        *,
        output_start: int | None = None,
    ) -> None:
        """Add what the model reads of an action: a tool message, or a user message in text mode.

        Args:
            action: what was asked.
            content: the text that the scaffold made of the result.
            result: what came of it; None where it was not carried out.
            output_start: where the raw output begins in `content`, if it stands there as it is.
        """
        ran = None if result is None else result.command
        message = self._append(
            "user" if action.tool_call_id is None else "tool",
            content,
            tool_call_id=action.tool_call_id,
            tool=action.tool,
            command=action.command,
            returncode=None if result is None else result.returncode,
            dropped_bytes=0 if ran is None else ran.dropped_bytes,
            undecodable_bytes=0 if ran is None else ran.undecodable_bytes,
            waited_s=self._waited_s(),
            output=None if result is None else result.output,
            output_start=output_start,
        )
        for change in () if result is None else result.plan_changes:
            event = PlanEvent(
                message_index=message.index,
                step_index=message.step_index,
                action=change.action,
                plan_step=change.plan_step,
                title=change.title,
                status=change.status,
                outcome=change.outcome,
            )
            self.trajectory.plan_events.append(event)

    def _waited_s(self) -> float:
        if self._prefix is not None and self._prefix.is_shared:
            return self._prefix.waited_s(len(self.trajectory.messages))
        return round(self._watch.now() - self._answered_at, 3)

    def _append(
        self,
        role: str,
        content: str,
        *,
        reasoning: str | None = None,
        tool_calls: tuple[ToolCall, ...] = (),
        **facts: Any,
    ) -> Message:
        count = self._counter.count
        call_tokens = sum(count(c.name) + count(c.arguments) for c in tool_calls)
        message = Message(
            index=len(self.trajectory.messages),
            step_index=self._caller.step_index,
            role=role,
            content=content,
            reasoning=reasoning,
            tool_calls=tool_calls,
            n_tokens=count(content) + call_tokens,
            reasoning_tokens=count(reasoning) if reasoning else 0,
            n_lines=len(content.splitlines()),
            **facts,
        )
        self._view.append(message)
        elision = self._elide(message)
        if elision is not None:
            self._turn.put_in_force([elision])
        return message

    # --- the loop ---------------------------------------------------------------------------------
    def step(self) -> ChatReply:
        """Return the model's answer to the arm's view of the history.

        Raises:
            EndedError: a limit, or the window, ends the run.
            InfraError: our side failed, or the worker is shutting down.
        """
        self._check_limits()
        self._n_steps += 1
        try:
            reply = self._turn.step()
        except ContextOverflowError as error:
            raise EndedError(at_limit("ContextWindowExceeded", str(error))) from error
        self._answered_at = self._watch.now()
        return reply

    def use(self, action: Action, sandbox: Sandbox) -> ToolResult:
        """Carry an action out.

        Raises:
            InfraError: our side failed.
            ForkDifferenceError: it came to something else than in the run this one begins with.
        """
        started = self._watch.now()
        result = self.tools[action.tool].run(action, sandbox)
        self.tool_s += self._watch.now() - started
        return result if self._prefix is None else self._prefix.result_of(action, result)

    def note_actions(self, actions: Sequence[Action]) -> None:
        """Look for a loop once a turn's actions are carried out.

        Raises:
            EndedError: it loops, and such a run is to stop.
        """
        asked = [(action.tool, action.command) for action in actions]
        self._n_identical = self._n_identical + 1 if asked == self._last_actions else 1
        self._last_actions = asked
        if 0 < self.agent.loop_length <= self._n_identical:
            self.loop = True
        if self.loop and self.agent.stop_on_loop:
            raise EndedError(at_limit("StoppedOnLoop", "the same call again and again"))

    def _check_limits(self) -> None:
        if self._watch.should_stop():
            raise NodeError("the run was stopped before its end: its worker is shutting down")
        if 0 < self.agent.step_limit <= self._n_steps:
            raise EndedError(at_limit("LimitsExceeded", plural(self._n_steps, "step")))
        wall_s = self._watch.now() - self.started_at
        if 0 < self.agent.wall_limit_s <= wall_s:
            raise EndedError(at_limit("TimeExceeded", f"{wall_s:.0f} s"))

    # --- what came of it --------------------------------------------------------------------------
    def template_dropped_tokens(self) -> int:
        """Return the reasoning tokens that the chat template removed by itself.

        Counted once for each message whose reasoning was dropped in some step call, by
        `ModelSpec.template_rules` (docs/methods.md, Tokens and context).
        """
        if self._model.template_rules == "keep_reasoning" or not self.calls:
            return 0
        # What came after the last call was shown to nobody.
        messages = self.trajectory.messages[: self.calls[-1].message_count]
        if self._model.template_rules == "drop_after_user":
            messages = messages[: self._last_user_index(messages)]
        return sum(
            message.reasoning_tokens
            for message in messages
            if (message.index, Part.REASONING) not in self._view.standing
        )

    def _last_user_index(self, messages: Sequence[Message]) -> int:
        users = [m.index for m in messages if m.role == "user"]
        users += [
            index
            for (index, part), edit in self._view.standing.items()
            if part is Part.INSERTED and edit.text
        ]
        return max(users, default=0)
