"""The driver of a policy: asks it before every step, answers it, puts its edits in force.

The only caller of `decide`, for live runs, replay, the treatment check, the page of arms and tests.
Each brings a view and a function that answers a policy's questions. An answer becomes a decision of
the trajectory, and what has been decided already is not asked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.views.policy import (
    Ask,
    AsksServer,
    AuxReply,
    AuxRequest,
    CallKind,
    KeepsFiles,
    Policy,
    RequestedToolCall,
    ServerQuestion,
)
from pipeline.views.trajectory import Decision, Edit, Edits, Message, Part, ToolCall, Trajectory


class View(Protocol):
    """A trajectory with edits laid over it."""

    @property
    def trajectory(self) -> Trajectory:
        """Everything that happened so far."""
        ...

    @property
    def standing(self) -> Edits:
        """The edits in force."""
        ...

    def apply(self, edits: Sequence[Edit]) -> None:
        """Put edits in force, for good."""
        ...


@dataclass(slots=True)
class PlainView:
    """A view that is not sent anywhere."""

    trajectory: Trajectory = field(default_factory=Trajectory)
    standing: dict[tuple[int, Part], Edit] = field(default_factory=dict)

    def apply(self, edits: Sequence[Edit]) -> None:
        """Put edits in force."""
        self.standing.update(((e.message_index, e.part), e) for e in edits)


class Walk:
    """One policy over one view."""

    def __init__(self, policy: Policy, view: View, answer: Ask) -> None:
        """Take the policy, what it sees, and who answers what it asks."""
        self._policy, self._view, self._answer = policy, view, answer

    def step(self) -> Sequence[Edit]:
        """Put the policy's edits of this moment in force, and return them."""
        edits = self.ask_policy()
        self._view.apply(edits)
        return edits

    def ask_policy(self) -> Sequence[Edit]:
        """Return the edits that the policy wants before the next step call; its calls are made."""
        return self._policy.decide(self._view.trajectory, self._view.standing, self._ask)

    def files_of(self, edits: Sequence[Edit]) -> Mapping[str, str]:
        """Return the text of every file that `edits` name, by its path in the sandbox."""
        if not edits or not isinstance(self._policy, KeepsFiles):
            return {}
        return self._policy.kept_files(self._view.trajectory, edits)

    def server_question(self) -> ServerQuestion | None:
        """Return what the policy wants from the server besides the answer to the next step call."""
        if not isinstance(self._policy, AsksServer):
            return None
        return self._policy.server_question(self._view.trajectory, self._view.standing)

    def keep_answer(
        self,
        kind: str,
        content: str,
        *,
        call_index: int,
        tool_calls: Sequence[RequestedToolCall] = (),
        completion_tokens: int = 0,
    ) -> None:
        """Keep an answer among the trajectory's decisions."""
        history = self._view.trajectory
        history.decisions.append(
            Decision(
                kind=kind,
                message_index=len(history.messages),
                call_index=call_index,
                content=content,
                tool_calls=kept_calls(tool_calls),
                completion_tokens=completion_tokens,
            )
        )

    def _ask(self, request: AuxRequest) -> AuxReply:
        known = self._known(request)
        if known is not None:
            return reply_of(known)
        reply = self._answer(request)
        self.keep_answer(
            request.kind.value,
            reply.content,
            call_index=reply.call_index,
            tool_calls=reply.tool_calls,
            completion_tokens=reply.completion_tokens,
        )
        return reply

    def _known(self, request: AuxRequest) -> Decision | None:
        """Return the answer that the trajectory already holds for this question."""
        here = len(self._view.trajectory.messages)
        return next(
            (
                decision
                for decision in self._view.trajectory.decisions
                if decision.message_index == here and decision.kind == request.kind.value
            ),
            None,
        )


def kept_calls(calls: Sequence[RequestedToolCall]) -> tuple[ToolCall, ...]:
    """Return tool calls as records keep them, usable or not."""
    return tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in calls)


def reply_of(decision: Decision) -> AuxReply:
    """Return a kept answer as the policy received it."""
    return AuxReply(
        kind=CallKind(decision.kind),
        content=decision.content,
        tool_calls=tuple(
            RequestedToolCall(id=c.id, name=c.name, arguments=c.arguments)
            for c in decision.tool_calls
        ),
        completion_tokens=decision.completion_tokens,
        call_index=decision.call_index,
    )


class Growing:
    """A finished trajectory that grows again; a separate object, since policies see no future."""

    def __init__(self, whole: Trajectory, decisions: Sequence[Decision] = ()) -> None:
        """Start before the first message, with the answers that are known beforehand."""
        self._whole, self._n_events = whole, 0
        self.trajectory = Trajectory(decisions=list(decisions))

    def grow_to(self, n_messages: int) -> Sequence[Message]:
        """Grow to so many messages, and return those that came."""
        grown, events = self.trajectory, self._whole.plan_events
        came = self._whole.messages[len(grown.messages) : n_messages]
        grown.append(came)
        while self._n_events < len(events) and events[self._n_events].message_index < n_messages:
            grown.plan_events.append(events[self._n_events])
            self._n_events += 1
        return came
