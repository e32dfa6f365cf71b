"""How a policy gets an answer: the recorded one where there is one, else a fresh one."""

from collections.abc import Sequence
from typing import Protocol

from pipeline.views.policy import Ask, AuxRequest
from pipeline.views.trajectory import Trajectory


class Call(Protocol):
    """A tool call, as requested or as recorded."""

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def arguments(self) -> str:
        """JSON text, or what was meant to be."""
        ...


class Answer(Protocol):
    """A reply to an auxiliary call, fresh or recorded."""

    @property
    def content(self) -> str:
        """The reply's text."""
        ...

    @property
    def tool_calls(self) -> Sequence[Call]:
        """The reply's tool calls."""
        ...

    @property
    def completion_tokens(self) -> int:
        """What the reply cost to write, thinking included."""
        ...


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
