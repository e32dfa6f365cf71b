"""The arm's policy at work in a run: asked for edits before every step, and answered.

Owns which edits are put in force when, the files that edits name, and the policy's own calls with
the decisions they leave. Does not know which policy it is; how requests are made and recorded is
the caller's.
"""

from collections.abc import Callable, Mapping, Sequence

from pipeline.agent.caller import Caller, kept_calls
from pipeline.agent.encoded_view import EncodedView
from pipeline.agent.line_judging import judgement
from pipeline.protocols import ChatReply, LinePruner
from pipeline.records.failure import ContextOverflowError, NodeError
from pipeline.records.json_columns import json_text
from pipeline.records.run_record import PRUNER_DECISION
from pipeline.views.policy import AsksServer, AuxReply, AuxRequest, CallKind, KeepsFiles, Policy
from pipeline.views.trajectory import Decision, Edit, ToolCall

Upload = Callable[[bytes, str], None]
"""Writes a file in the sandbox: content, path."""


class PolicyTurn:
    """Makes the step calls of a run, each after the policy had its turn."""

    def __init__(
        self,
        policy: Policy,
        pruner: LinePruner | None,
        *,
        view: EncodedView,
        caller: Caller,
        upload: Upload,
        now: Callable[[], float],
    ) -> None:
        self._policy, self._pruner = policy, pruner
        self._view, self._caller = view, caller
        self._upload, self._now = upload, now

    def put_in_force(self, edits: Sequence[Edit]) -> None:
        """Lay edits over the view, for good; the next call records them."""
        if edits:
            self._view.apply(edits)
            self._caller.note_edits(edits)

    def step(self) -> ChatReply:
        """Return the answer to the view that the policy wants now.

        Raises:
            ContextOverflowError: the view no longer fits the window.
            InfraError: our side failed.
        """
        policy, history, standing = self._policy, self._view.trajectory, self._view.standing
        try:
            edits = policy.decide(history, standing, self._ask)
            files = self._files_of(edits)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # A defect of an arm's own code is ours: it must not count against the arm.
            raise NodeError(f"the arm's policy failed: {error!r}") from error
        for path, text in files.items():
            self._upload(text.encode("utf-8", "replace"), path)
        self.put_in_force(edits)
        return self._call()

    def _files_of(self, edits: Sequence[Edit]) -> Mapping[str, str]:
        if not edits or not isinstance(self._policy, KeepsFiles):
            return {}
        return self._policy.kept_files(self._view.trajectory, edits)

    def _call(self) -> ChatReply:
        """Make the step call; what a policy asks the server along with it becomes a decision."""
        policy, history = self._policy, self._view.trajectory
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
        self._decided(question.kind, json_text(answer))
        return reply

    def _ask(self, request: AuxRequest) -> AuxReply:
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
        self._decided(
            request.kind.value,
            answer.content,
            tool_calls=kept_calls(answer.tool_calls),
            completion_tokens=answer.completion_tokens,
        )
        return answer

    def _judge(self, request: AuxRequest) -> AuxReply:
        """Have the arm's line pruner judge new outputs; its answer becomes a decision."""
        found = judgement(request, self._pruner, self._now)
        self._caller.note_pruner(found.answer, found.wall_s)
        # Kept on the record of the call that comes next.
        self._decided(PRUNER_DECISION, found.answer, call_index=len(self._caller.calls))
        return AuxReply(kind=CallKind.LINES, content=found.answer)

    def _decided(
        self,
        kind: str,
        content: str,
        *,
        call_index: int | None = None,
        tool_calls: tuple[ToolCall, ...] = (),
        completion_tokens: int = 0,
    ) -> None:
        history = self._view.trajectory
        history.decisions.append(
            Decision(
                kind=kind,
                message_index=len(history.messages),
                call_index=len(self._caller.calls) - 1 if call_index is None else call_index,
                content=content,
                tool_calls=tool_calls,
                completion_tokens=completion_tokens,
            )
        )
