"""Runs written down beforehand: groups of messages, as an agent appends them between two calls."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.views.elide import elide
from pipeline.views.policy import AuxReply, AuxRequest, Policy, RequestedToolCall, TokenCounter
from pipeline.views.trajectory import Decision, Edit, Message, Part, PlanEvent, ToolCall, Trajectory
from pipeline.views.walk import PlainView, Walk
from tests.context.counters import WordCounter

WORDS = WordCounter()


@dataclass(frozen=True)
class Act:
    """One action and what came of it."""

    command: str
    output: str = ""
    returncode: int = 0
    tool: str = "bash"
    frame: tuple[str, str] = ("", "")
    """What a template writes before and after the output."""
    waited_s: float | None = None
    arguments: Mapping[str, Any] | None = None
    """The call's, of a tool that takes more than a command."""
    plan: tuple[tuple[str, int], ...] = ()
    """Plan events of a `planctl` action: (action, plan step)."""


@dataclass(frozen=True)
class Round:
    """What one step call led to: a turn, or a format error."""

    acts: tuple[Act, ...] = ()
    text: str = ""
    reasoning: str | None = None

    @property
    def is_format_error(self) -> bool:
        return not self.acts


@dataclass
class Ran:
    """A policy's whole run over a script."""

    trajectory: Trajectory
    standing: dict[tuple[int, Part], Edit]
    moments: list["Moment"] = field(default_factory=list)
    requests: list[AuxRequest] = field(default_factory=list)

    def edits(self, reason: str) -> list[Edit]:
        return [e for e in self.standing.values() if e.reason == reason]


@dataclass(frozen=True)
class Moment:
    """One decision: what stood before it and what it added."""

    n_messages: int
    before: dict[tuple[int, Part], Edit]
    new: Sequence[Edit]
    n_turns: int


def planctl(*events: tuple[str, int], output: str = "plan") -> Act:
    return Act(command=json.dumps(events), output=output, tool="planctl", plan=events)


def set_plan(n_steps: int) -> Act:
    return planctl(*[("set", k) for k in range(n_steps + 1)], ("start", 1))


def read(path: str, words: int = 20) -> Act:
    return Act(command=f"cat {path}", output=" ".join(f"{path}:{k}" for k in range(words)))


def rounds(*acts: Act) -> list[Round]:
    """One action a turn."""
    return [Round(acts=(act,)) for act in acts]


class Script:
    """Appends a run's rounds to a trajectory, one at a time."""

    def __init__(self, counter: TokenCounter = WORDS, *, text_mode: bool = False) -> None:
        self.trajectory = Trajectory()
        self._counter = counter
        self._text_mode = text_mode
        self._step = 0
        self._add(role="system", content="You are an agent.")
        self._add(role="user", content="Fix the bug.")

    def append(self, round_: Round) -> list[Message]:
        self._step += 1
        start = len(self.trajectory.messages)
        if round_.is_format_error:
            self._add(role="user", content="Your reply had no action.")
            return self.trajectory.messages[start:]
        calls = tuple(
            ToolCall(
                id=f"call_{self._step}_{k}",
                name=act.tool,
                arguments=json.dumps(act.arguments or {"command": act.command}),
            )
            for k, act in enumerate(round_.acts)
        )
        if self._text_mode:
            blocks = "".join(f"\n```mswea_bash_command\n{a.command}\n```" for a in round_.acts)
            self._add(role="assistant", content=round_.text + blocks, reasoning=round_.reasoning)
        else:
            self._add(
                role="assistant",
                content=round_.text,
                reasoning=round_.reasoning,
                tool_calls=calls,
            )
        for call, act in zip(calls, round_.acts, strict=True):
            self._result(act, None if self._text_mode else call.id)
        return self.trajectory.messages[start:]

    def _result(self, act: Act, call_id: str | None) -> None:
        self._add(
            role="tool" if call_id else "user",
            content=act.output.join(act.frame),
            output=act.output,
            output_start=len(act.frame[0]),
            tool=act.tool,
            tool_call_id=call_id,
            command=act.command,
            returncode=act.returncode,
            waited_s=act.waited_s,
        )
        index = len(self.trajectory.messages) - 1
        self.trajectory.plan_events += [
            PlanEvent(
                message_index=index,
                step_index=self._step,
                action=action,
                plan_step=step,
                title=f"step {step}",
                status="",
            )
            for action, step in act.plan
        ]

    def _add(self, *, role: str, content: str, **other: object) -> None:
        message = Message(
            index=len(self.trajectory.messages),
            step_index=self._step,
            role=role,
            content=content,
            **other,  # type: ignore[arg-type]
        )
        count = self._counter.count
        calls = sum(count(c.name) + count(c.arguments) for c in message.tool_calls)
        self.trajectory.append(
            [
                replace(
                    message,
                    n_tokens=count(content) + calls,
                    reasoning_tokens=count(message.reasoning or ""),
                    n_lines=len(content.splitlines()),
                )
            ]
        )


Answers = Callable[[AuxRequest], AuxReply]


def run(
    policy: Policy,
    script: Iterable[Round],
    answer: Answers | None = None,
    *,
    decisions: Sequence[Decision] = (),
    text_mode: bool = False,
    elide_chars: int = 10_000,
) -> Ran:
    """Drive a policy over a script as the agent does, recording what it is answered."""
    book = Script(text_mode=text_mode)
    trajectory = book.trajectory
    trajectory.decisions += decisions
    ran = Ran(trajectory, {})
    view = PlainView(trajectory=trajectory)
    walk = Walk(policy, view, noted(answer or no_answer, ran.requests))
    for message in trajectory.messages:
        assert elide(message, elide_chars) is None
    for round_ in [None, *script]:
        came = [] if round_ is None else book.append(round_)
        view.apply([edit for m in came if (edit := elide(m, elide_chars)) is not None])
        before = dict(view.standing)
        new = walk.step()
        ran.moments.append(
            Moment(
                n_messages=len(trajectory.messages),
                before=before,
                new=list(new),
                n_turns=sum(bool(t.observations) for t in trajectory.turns),
            )
        )
    ran.standing = view.standing
    return ran


def noted(answer: Answers, requests: list[AuxRequest]) -> Answers:
    """The same answers, the requests kept."""

    def ask(request: AuxRequest) -> AuxReply:
        requests.append(request)
        return answer(request)

    return ask


def no_answer(request: AuxRequest) -> AuxReply:
    raise AssertionError(f"unexpected {request.kind} call")


def prunes(*ids: object, note: str | None = None) -> Answers:
    """A model that always prunes these ids."""
    arguments: dict[str, object] = {"ids": list(ids)}
    if note is not None:
        arguments["note"] = note
    return calls("prune_observations", json.dumps(arguments))


def calls(name: str, arguments: str) -> Answers:
    return lambda request: AuxReply(
        kind=request.kind,
        content="",
        tool_calls=(RequestedToolCall(id="a", name=name, arguments=arguments),),
        completion_tokens=10,
    )


def says(text: str) -> Answers:
    return lambda request: AuxReply(kind=request.kind, content=text, completion_tokens=10)
