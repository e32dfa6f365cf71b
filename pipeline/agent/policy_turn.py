"""The arm's policy at work in a run: asked for edits before every step, and answered.

Owns which edits are put in force when, the files that edits name, and the policy's own calls with
the decisions they leave. Does not know which policy it is; how requests are made and recorded is
the caller's.
"""

from collections.abc import Callable, Sequence

from pipeline.agent.caller import Caller
from pipeline.agent.encoded_view import EncodedView
from pipeline.agent.line_judging import judgement
from pipeline.protocols import ChatReply, LinePruner
from pipeline.records.failure import ContextOverflowError, NodeError
from pipeline.records.json_columns import json_text
from pipeline.views.policy import AuxReply, AuxRequest, CallKind, Policy
from pipeline.views.prune_tool import ignored_in, prune_answer
from pipeline.views.trajectory import Edit
from pipeline.views.walk import Walk

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
        self._pruner, self._view, self._caller = pruner, view, caller
        self._walk = Walk(policy, view, self._answer)
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
        try:
            edits = self._walk.ask_policy()
            files = self._walk.files_of(edits)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # A defect of an arm's own code is ours: it must not count against the arm.
            raise NodeError(f"the arm's policy failed: {error!r}") from error
        for path, text in files.items():
            self._upload(text.encode("utf-8", "replace"), path)
        self.put_in_force(edits)
        return self._call()

    def _call(self) -> ChatReply:
        """Make the step call; what a policy asks the server along with it becomes a decision."""
        question = self._walk.server_question()
        if question is None:
            return self._caller.step()
        reply = self._caller.step({"kv_transfer_params": question.params})
        answer = {"messages": list(question.messages), "answer": reply.server_params}
        self._caller.keep_server_answer({"kind": question.kind, **answer})
        self._walk.keep_answer(question.kind, json_text(answer), call_index=self._last_call)
        return reply

    @property
    def _last_call(self) -> int:
        return len(self._caller.calls) - 1

    def _answer(self, request: AuxRequest) -> AuxReply:
        """Make an auxiliary call for the policy.

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
            return AuxReply(kind=request.kind, content="", call_index=self._last_call)
        ignored = None
        if request.kind is CallKind.CLEANUP:
            answer = prune_answer(reply.content, reply.tool_calls)
            ignored = json_text(ignored_in(answer, request.ids))
        self._caller.amend(error=None, reply=reply, ignored_ids=ignored)
        return AuxReply(
            kind=request.kind,
            content=reply.content,
            tool_calls=reply.tool_calls,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            call_index=self._last_call,
        )

    def _judge(self, request: AuxRequest) -> AuxReply:
        """Have the arm's line pruner judge new outputs."""
        found = judgement(request, self._pruner, self._now)
        self._caller.note_pruner(found.answer, found.wall_s)
        # Kept on the record of the call that comes next.
        return AuxReply(
            kind=CallKind.LINES, content=found.answer, call_index=len(self._caller.calls)
        )
