"""One client's conversation: its growing list as a trajectory, the arm's view of it, the calls.

The session of a run that somebody else drives: history, policy and record are the same parts that
our own runs have, but the client decides what is said next and when it ends. Does not know HTTP.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.agent.line_judging import judgement
from pipeline.protocols import LinePruner
from pipeline.proxying.answer import reasoning_of
from pipeline.proxying.client_list import (
    ClientMessage,
    calls_of,
    content_of,
    fenced_command,
    role_of,
)
from pipeline.proxying.secret_words import masked_record
from pipeline.proxying.shown_list import CLIENT, shown_list
from pipeline.records.foreign.history import History
from pipeline.records.foreign.pictures import n_pictures
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.views.policy import (
    Ask,
    AuxReply,
    AuxRequest,
    CallKind,
    Policy,
    TokenCounter,
)
from pipeline.views.trajectory import Edit, Message, Part, Trajectory
from pipeline.views.walk import PlainView, Walk

BASH = "bash"


@dataclass(frozen=True, kw_only=True, slots=True)
class Treatment:
    """The arm, as every conversation of a proxy has it."""

    policy: Callable[[int], Policy]
    """The arm's rule for one run, by the run's seed."""
    counter: TokenCounter
    pruner: LinePruner | None = None
    text_actions: bool = False
    """The user's message after a reply is the output of the reply's action."""


class Conversation:
    """One trajectory under way. For one request at a time."""

    def __init__(
        self, head: RunRecord, treatment: Treatment, seed: int, now: Callable[[], float]
    ) -> None:
        """Begin.

        Args:
            head: the run's identity, without anything that happened.
            treatment: the arm.
            seed: of the policy.
            now: Unix seconds.
        """
        self.head = head
        self.calls: list[CallRecord] = []
        self.busy = False
        """Whether a request is being answered; `Conversations` keeps it."""
        self.last_used_at = now()
        self._treatment, self._now = treatment, now
        self._view = PlainView()
        self._walk = Walk(treatment.policy(seed), self._view, self._answer)
        self._history = History(treatment.counter.count)
        self._tools: dict[str, str] = {}
        self._facts: dict[str, Any] = {}
        self._pictures: Counter[int] = Counter()
        self._new_edits: list[Edit] = []
        self._decided_at = -1
        self._step = 0
        self._pruner_said: tuple[str, float] | None = None
        self._ask: Ask | None = None
        self._kept = (0, 0, 0)
        self._secrets: frozenset[str] = frozenset()

    @property
    def trajectory(self) -> Trajectory:
        """What the client's list has held so far."""
        return self._view.trajectory

    @property
    def is_answered(self) -> bool:
        """Whether the last request was answered as it should be."""
        return bool(self.calls) and self.calls[-1].error is None

    @property
    def has_failed(self) -> bool:
        """Whether a request with the list that it holds now was answered with an error."""
        last = self.calls[-1] if self.calls else None
        here = len(self.trajectory.messages)
        return last is not None and last.error is not None and last.message_count == here

    # --- the history ------------------------------------------------------------------------------
    def take(
        self, messages: Sequence[ClientMessage], secrets: frozenset[str], **facts: Any
    ) -> None:
        """Grow to the client's list; what went before is as it was, reasoning aside.

        Args:
            messages: the whole list.
            secrets: what no record may hold.
            facts: what the record keeps beside, newest word.
        """
        self._secrets |= secrets
        known = len(self.trajectory.messages)
        self._note_reasoning(messages[:known])
        added = messages[known:]
        if added:
            opens = any(role_of(message) == "assistant" for message in added)
            self._history.step = self._step - opens if self._step else 0
            for message in added:
                self._add(message)
            waited_s = round(self._now() - self.last_used_at, 3)
            self.trajectory.append(
                [
                    replace(message, waited_s=waited_s) if message.is_observation else message
                    for message in self._history.messages[known:]
                ]
            )
            self._step = max(self._step, self._history.step) + 1
        self.note(**facts)

    def note(self, **facts: Any) -> None:
        """Keep facts beside the record."""
        self._facts |= facts

    def _add(self, message: ClientMessage) -> None:
        history, role, text = self._history, role_of(message), content_of(message)
        pictures = n_pictures(message.get("content"))
        if pictures:
            self._pictures[len(history.messages)] = pictures
        if role == "assistant":
            history.reply(text, reasoning=reasoning_of(message), calls=calls_of(message))
        elif role in ("tool", "function"):
            asked = message.get("tool_call_id")
            history.result(asked if isinstance(asked, str) else None, text)
        else:
            before = history.messages[-1] if history.messages else None
            history.say(role, text)
            if self._treatment.text_actions and before and before.role == "assistant":
                command = fenced_command(before.content)
                history.messages[-1] = replace(history.messages[-1], tool=BASH, command=command)

    def _note_reasoning(self, messages: Sequence[ClientMessage]) -> None:
        """Record where the client itself no longer sends the reasoning that it did send."""
        standing = self._view.standing
        dropped = []
        for index, message in enumerate(messages):
            held: Message = self.trajectory.messages[index]
            edit = standing.get((index, Part.REASONING))
            if held.role != "assistant" or (edit is not None and edit.reason != CLIENT):
                continue
            text = reasoning_of(message) or ""
            if text != ((held.reasoning or "") if edit is None else edit.text):
                dropped.append(
                    Edit(message_index=index, part=Part.REASONING, text=text, reason=CLIENT)
                )
        self._put_in_force(dropped)

    def _put_in_force(self, edits: Sequence[Edit]) -> None:
        self._view.apply(edits)
        self._new_edits += edits

    # --- the arm ----------------------------------------------------------------------------------
    def decide(self, ask: Ask) -> None:
        """Let the policy decide before a request; for a request that is repeated it has decided.

        Args:
            ask: makes the calls that the policy wants made.
        """
        here = len(self.trajectory.messages)
        if self._decided_at == here:
            return
        self._ask = ask
        self._put_in_force(self._walk.ask_policy())
        self._decided_at = here

    def shown(
        self, messages: Sequence[ClientMessage], transient: Sequence[Edit] = ()
    ) -> list[ClientMessage]:
        """Return what the model is shown of the client's list."""
        laid = {(edit.message_index, edit.part): edit for edit in transient}
        return shown_list(messages, {**self._view.standing, **laid})

    def _answer(self, request: AuxRequest) -> AuxReply:
        if request.kind is not CallKind.LINES:
            assert self._ask is not None
            return self._ask(request)
        found = judgement(request, self._treatment.pruner, self._now)
        self._pruner_said = (found.answer, found.wall_s)
        return AuxReply(kind=request.kind, content=found.answer, call_index=len(self.calls))

    # --- the record -------------------------------------------------------------------------------
    def add_call(self, *, kind: CallKind, tools: tuple[str, str] | None, **facts: Any) -> int:
        """Record a call, with the edits that are in force from it on; return its index.

        Args:
            kind: why it was made.
            tools: hash and JSON text of the tool list that was sent.
            facts: further fields of `CallRecord`.
        """
        pruner_answer, pruner_s = self._pruner_said or (None, None)
        self.calls.append(
            CallRecord(
                step_index=self._step,
                kind=kind.value,
                message_count=len(self.trajectory.messages),
                edits=tuple(self._new_edits),
                tools_sha256=tools[0] if tools else None,
                pruner_answer=pruner_answer,
                pruner_s=pruner_s,
                **facts,
            )
        )
        self._tools |= {tools[0]: tools[1]} if tools else {}
        self._new_edits, self._pruner_said = [], None
        self.last_used_at = self._now()
        return len(self.calls) - 1

    def new_part(self) -> RunRecord:
        """Return what happened since `part_is_kept`, as a part of the run's record."""
        messages, calls, decisions = self._kept
        part = replace(
            self.head,
            finished_at=self._now(),
            messages=tuple(self.trajectory.messages[messages:]),
            calls=tuple(self.calls[calls:]),
            decisions=tuple(self.trajectory.decisions[decisions:]),
            tools=dict(self._tools),
            extra=self._extra(),
        )
        return masked_record(part, self._secrets)

    def part_is_kept(self) -> None:
        """Take what happened so far for kept."""
        held = self.trajectory
        self._kept = (len(held.messages), len(self.calls), len(held.decisions))

    def record(self) -> RunRecord:
        """Return the whole record so far."""
        self._kept = (0, 0, 0)
        return self.new_part()

    def _extra(self) -> Mapping[str, Any]:
        pictures = {str(index): n for index, n in self._pictures.items()}
        return {**self.head.extra, **self._facts, **({"pictures": pictures} if pictures else {})}
