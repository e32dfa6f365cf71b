"""mini-SWE-agent's `Model` over a server: the model is shown a view, never the history itself.

Owns the trajectory of a run and the edits in force. Before every step call it asks the arm's policy
for edits, and answers what the policy asks. Does not know which policy it is; how requests are made
and recorded is the caller's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.agent.actions import Action, BadReplyError, actions_from_calls, actions_from_text
from pipeline.agent.caller import Caller, RequestIdentity, kept_calls
from pipeline.agent.encoded_view import EncodedView
from pipeline.agent.line_judging import judgement
from pipeline.agent.messages import EXIT_ROLE, MiniMessage, assistant_dict, message_from_mini
from pipeline.protocols import (
    AsksServer,
    AuxReply,
    AuxRequest,
    CallKind,
    ChatReply,
    Completer,
    KeepsFiles,
    LinePruner,
    Policy,
    TokenCounter,
)
from pipeline.records.failure import ContextOverflowError, NodeError
from pipeline.records.json_columns import json_text
from pipeline.records.run_record import PRUNER_DECISION, CallRecord
from pipeline.records.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    PlanEvent,
    Trajectory,
)
from pipeline.spec.agent import AgentSpec
from pipeline.spec.model import ModelSpec

Elide = Callable[[Message], Edit | None]
"""The shortening of very long outputs that every arm shares."""

Upload = Callable[[bytes, str], None]
"""Writes a file in the sandbox: content, path."""


class ViewedModel:
    """Answers mini's agent from a server that sees the arm's view."""

    def __init__(
        self,
        *,
        agent: AgentSpec,
        model: ModelSpec,
        policy: Policy,
        completer: Completer,
        counter: TokenCounter,
        elide: Elide,
        tools: Sequence[Mapping[str, Any]],
        identity: RequestIdentity,
        upload: Upload,
        pruner: LinePruner | None,
        now: Callable[[], float],
    ) -> None:
        self.config = None
        self._view = EncodedView(counter)
        self._caller = Caller(
            model=model,
            completer=completer,
            counter=counter,
            view=self._view,
            tools=tools,
            parallel_tool_calls=agent.parallel_tool_calls,
            identity=identity,
        )
        self._agent, self._model, self._policy = agent, model, policy
        self._counter, self._elide, self._upload = counter, elide, upload
        self._pruner, self._now = pruner, now
        self._tool_names = tuple(tool["function"]["name"] for tool in tools)
        self._n_absorbed = 0

    @property
    def trajectory(self) -> Trajectory:
        """Everything that happened so far."""
        return self._view.trajectory

    @property
    def calls(self) -> list[CallRecord]:
        """The calls made so far, failed ones included."""
        return self._caller.calls

    @property
    def tool_lists(self) -> dict[str, str]:
        """The tool list as JSON text, by its hash; empty in text mode."""
        return self._caller.tool_lists

    # --- mini's protocol -------------------------------------------------------------------------
    def query(self, messages: list[MiniMessage], **_kwargs: Any) -> MiniMessage:
        """Return the assistant's next message, its actions in `extra`.

        Raises:
            BadReplyError: the reply is no usable action; it was paid for and is recorded.
            ContextOverflowError: the view no longer fits the window.
            InfraError: our side failed.
        """
        self.absorb(messages)
        try:
            edits = self._policy.decide(self.trajectory, self._view.standing, self.ask)
            files = self._files_of(edits)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # A defect of an arm's own code is ours: it must not count against the arm.
            raise NodeError(f"the arm's policy failed: {error!r}") from error
        for path, text in files.items():
            self._upload(text.encode("utf-8", "replace"), path)
        self._put_in_force(edits)
        reply = self._step()
        try:
            return assistant_dict(reply, self._actions_of(reply))
        except BadReplyError as error:
            # The bad message enters no history, so the call itself keeps it.
            self._caller.amend(error=f"format: {error.error}", reply=reply)
            raise

    def format_message(self, **message: Any) -> MiniMessage:
        """Return the message as it is."""
        return message

    def get_template_vars(self, **_kwargs: Any) -> dict[str, Any]:
        """Return nothing: prompts see the task and the working directory only."""
        return {}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: runs are kept as records."""
        return {}

    # --- the history -----------------------------------------------------------------------------
    def absorb(self, messages: Sequence[MiniMessage]) -> None:
        """Add to the trajectory what the agent's history has beyond it."""
        for mini in messages[self._n_absorbed :]:
            self._n_absorbed += 1
            if mini["role"] == EXIT_ROLE:
                continue
            message = message_from_mini(
                mini,
                index=len(self.trajectory.messages),
                step_index=self._caller.step_index,
                counter=self._counter,
            )
            self._view.append(message)
            self.trajectory.plan_events.extend(_plan_events(mini, message))
            elision = self._elide(message)
            if elision is not None:
                self._put_in_force([elision])

    def template_dropped_tokens(self) -> int:
        """Return the reasoning tokens that the chat template removed by itself.

        Counted once for each message whose reasoning was dropped in some step call, by
        `ModelSpec.template_rules` (METHODS 4).
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
        users += [index for index, part in self._view.standing if part is Part.INSERTED]
        return max(users, default=0)

    def _files_of(self, edits: Sequence[Edit]) -> Mapping[str, str]:
        if not edits or not isinstance(self._policy, KeepsFiles):
            return {}
        return self._policy.kept_files(self.trajectory, edits)

    def _put_in_force(self, edits: Sequence[Edit]) -> None:
        if edits:
            self._view.apply(edits)
            self._caller.note_edits(edits)

    def _actions_of(self, reply: ChatReply) -> list[Action]:
        if self._caller.has_tools:
            return actions_from_calls(reply, self._tool_names)
        return actions_from_text(reply, self._tool_names, several=self._agent.parallel_tool_calls)

    def _step(self) -> ChatReply:
        """Make the step call; what a policy asks the server along with it becomes a decision."""
        policy, history = self._policy, self.trajectory
        question = (
            policy.server_question(history, self._view.standing)
            if isinstance(policy, AsksServer)
            else None
        )
        if question is None:
            return self._caller.step()
        reply = self._caller.step({"kv_transfer_params": question.params})
        answer = {"messages": list(question.messages), "answer": reply.server_params}
        self._caller.keep_server_answer({"kind": question.kind, **answer})
        history.decisions.append(
            Decision(
                kind=question.kind,
                message_index=len(history.messages),
                call_index=len(self.calls) - 1,
                content=json_text(answer),
            )
        )
        return reply

    # --- the policy's own calls ------------------------------------------------------------------
    def ask(self, request: AuxRequest) -> AuxReply:
        """Make an auxiliary call for the policy, and keep its answer among the decisions.

        A call that does not fit the window answers nothing: an empty, unusable reply.
        """
        if request.kind is CallKind.LINES:
            return self._judge(request)
        is_view = request.messages is None
        try:
            reply = self._caller.send(
                request.kind,
                transient=tuple(request.edits) if is_view else (),
                own=None if request.messages is None else tuple(request.messages),
                tool_choice=request.tool_choice if is_view and self._caller.has_tools else None,
                temperature=request.temperature,
                max_tokens=request.max_tokens,
            )
        except ContextOverflowError:
            answer = AuxReply(kind=request.kind, content="")
        else:
            self._caller.amend(error=None, reply=reply)
            answer = AuxReply(
                kind=request.kind,
                content=reply.content,
                tool_calls=reply.tool_calls,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
            )
        self.trajectory.decisions.append(
            Decision(
                kind=request.kind.value,
                message_index=len(self.trajectory.messages),
                call_index=len(self.calls) - 1,
                content=answer.content,
                tool_calls=kept_calls(answer.tool_calls),
                completion_tokens=answer.completion_tokens,
            )
        )
        return answer

    def _judge(self, request: AuxRequest) -> AuxReply:
        """Have the arm's line pruner judge new outputs; its answer becomes a decision."""
        found = judgement(request, self._pruner, self._now)
        self._caller.note_pruner(found.answer, found.wall_s)
        self.trajectory.decisions.append(
            Decision(
                kind=PRUNER_DECISION,
                message_index=len(self.trajectory.messages),
                # Kept on the record of the call that comes next.
                call_index=len(self.calls),
                content=found.answer,
            )
        )
        return AuxReply(kind=CallKind.LINES, content=found.answer)


def _plan_events(mini: MiniMessage, message: Message) -> list[PlanEvent]:
    return [
        PlanEvent(
            message_index=message.index,
            step_index=message.step_index,
            action=change.action,
            plan_step=change.plan_step,
            title=change.title,
            status=change.status,
            outcome=change.outcome,
        )
        for change in mini.get("extra", {}).get("plan_changes", ())
    ]
