"""A recorded run being put together: messages and calls in the order in which they came.

What the formats share: counting texts, pairing results with their calls, giving pictures their
weight, edits where a compaction replaced the history. What a format's fields mean is its reader's.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.records.failure import FailureClass
from pipeline.records.foreign.pictures import n_pictures, weighed
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.records.foreign.times import duration, unix_seconds, with_waits
from pipeline.records.rows import STEP
from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import RECORDED, Edit, Message, Part, ToolCall, Trajectory

NOT_RECORDED = "not recorded"
"""Exit status where a format does not say how its run ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one call. `prompt` includes what was read from and written to the cache."""

    prompt: int | None = None
    cached: int | None = None
    written: int | None = None
    written_1h: int | None = None
    """Of `written`, what is kept for an hour; None where the file does not split it."""
    completion: int | None = None
    reasoning: int | None = None
    model: str | None = None
    """As this call names it."""

    def of(self, call: CallRecord) -> CallRecord:
        """Return the call with this usage. No prompt is empty: 0 says that nobody counted."""
        counted = self.prompt != 0
        return replace(
            call,
            prompt_tokens=self.prompt if counted else None,
            cached_tokens=self.cached if counted else None,
            cache_write_tokens=self.written if counted else None,
            cache_write_1h_tokens=self.written_1h if counted else None,
            completion_tokens=self.completion,
            reasoning_tokens=self.reasoning,
            served_model=self.model if isinstance(self.model, str) else None,
        )


@dataclass(slots=True)
class History:
    """Takes a run's messages and calls, and becomes a `ForeignRun`."""

    count: Count
    hides_prefix: bool = False
    """The file holds neither system prompt nor tools, although the server counts them."""
    messages: list[Message] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    n_repeated: int = 0
    """So many of the first calls are billed in another file."""
    aside: list[CallRecord] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    step: int = 0
    _answered_at: float | None = None
    _pictures: Counter[int] = field(default_factory=Counter)
    _commands: dict[str, tuple[str, str]] = field(default_factory=dict)
    _edits: list[Edit] = field(default_factory=list)

    def note_time(self, value: Any) -> None:
        """Take a time in any form; what is none is passed over."""
        moment = unix_seconds(value)
        if moment is not None:
            self.times.append(moment)

    def say(self, role: str, content: Any, *, at: Any = None) -> None:
        """Add a message of the system or the user, which came `at` a time."""
        self._add(role, content, waited_s=self._since_answer(at))

    def reply(
        self,
        content: Any,
        *,
        reasoning: str | None = None,
        calls: Iterable[ToolCall] = (),
        at: Any = None,
    ) -> None:
        """Add a reply of the model, which opens a step and came `at` a time."""
        self.step += 1
        self._answered_at = unix_seconds(at)
        tool_calls = tuple(calls)
        for call in tool_calls:
            self._commands[call.id] = (call.name, command_of(call))
        self._add("assistant", content, reasoning=reasoning, tool_calls=tool_calls)

    def result(
        self,
        call_id: str | None,
        content: Any,
        *,
        returncode: int | None = None,
        at: Any = None,
    ) -> None:
        """Add the result of a tool call; without an id, of the newest call that has none yet."""
        if call_id is None and self._commands:
            call_id = next(reversed(self._commands))
        tool, command = self._commands.pop(call_id or "", ("unknown", ""))
        self._add(
            "tool",
            content,
            tool_call_id=call_id,
            tool=tool,
            command=command or None,
            returncode=returncode,
            waited_s=self._since_answer(at),
        )

    def _since_answer(self, at: Any) -> float | None:
        """Return the seconds from the last reply to `at`; None where a time is not known."""
        now = unix_seconds(at)
        if now is None or self._answered_at is None or now < self._answered_at:
            return None
        return round(now - self._answered_at, 3)

    def bill(self, usage: Usage, *, started_at: Any = None, elsewhere: bool = False) -> None:
        """Add the call that the next reply answers.

        Args:
            usage: of the call.
            started_at: when.
            elsewhere: this file only repeats it; another one bills it.
        """
        if elsewhere and len(self.calls) > self.n_repeated:
            return
        self.calls.append(
            usage.of(
                CallRecord(
                    step_index=self.step + 1,
                    kind=STEP,
                    message_count=len(self.messages),
                    edits=tuple(self._edits),
                    started_at=unix_seconds(started_at),
                )
            )
        )
        self.n_repeated += elsewhere
        self._edits = []

    def bill_again(self, usage: Usage) -> None:
        """Give the newest call the usage that came after its reply."""
        self.calls[-1] = usage.of(self.calls[-1])

    def bill_aside(self, usage: Usage, *, started_at: Any = None) -> None:
        """Add a call that was billed and is no part of this conversation."""
        record = CallRecord(step_index=0, kind=STEP, message_count=0)
        self.aside.append(usage.of(replace(record, started_at=unix_seconds(started_at))))

    def forget(self) -> None:
        """Take all messages so far out of the view: a compaction replaced them."""
        gone = {edit.message_index for edit in self._edits}
        self._edits += [
            Edit(message_index=m.index, part=Part.DROPPED, text="", reason=RECORDED)
            for m in self.messages
            if m.index not in gone
        ]

    def show_instead(self, index: int, text: str) -> None:
        """Show a text in place of a message's content, from the next call on."""
        edit = Edit(message_index=index, part=Part.CONTENT, text=text, reason=RECORDED)
        self._edits.append(edit)

    def run(
        self,
        *,
        agent: str,
        version: str,
        model: str,
        instance_id: str | None = None,
        ending: tuple[str, FailureClass, str | None] | None = None,
        digest: str | None = None,
    ) -> ForeignRun:
        """Return the run.

        Args:
            agent: the scaffold.
            version: of the scaffold.
            model: as the file names it.
            instance_id: where the file has one.
            ending: exit status, class and what was said; None: the file does not say.
            digest: of the run's own content, where its file holds several.

        Raises:
            ValueError: nothing was said in it, or its pictures have no weight.
        """
        if not self.messages:
            raise ValueError("no messages in it")
        if self.hides_prefix and self.calls:
            first = self.calls[0].message_count
            hidden = [index for index in self._pictures if index < first]
            if hidden:
                raise ValueError(
                    f"message {hidden[0]} holds pictures beside a system prompt that the file does "
                    "not have: their weight is unknown"
                )
        repeated, own = self.calls[: self.n_repeated], self.calls[self.n_repeated :]
        if own:
            # Whoever reads `calls` alone must see the view that the first of them was sent with.
            edits = tuple(edit for call in [*repeated, own[0]] for edit in call.edits)
            own[0] = replace(own[0], edits=edits)
        trajectory = Trajectory()
        trajectory.append(
            with_waits(weighed(self.messages, self.calls, self._pictures), self.calls)
        )
        wall_s, time_note = duration(self.times)
        status, failure_class, failure = ending or (
            NOT_RECORDED,
            FailureClass.UNKNOWN_ENDING if own else FailureClass.INFRA_NODE,
            None,
        )
        return ForeignRun(
            instance_id=instance_id,
            agent=agent,
            agent_version=version,
            model=model,
            trajectory=trajectory,
            calls=tuple(own),
            repeated=tuple(repeated),
            aside=tuple(self.aside),
            exit_status=status,
            failure_class=failure_class,
            failure=failure,
            submission="",
            started_at=None if time_note else min(self.times, default=None),
            finished_at=None if time_note else max(self.times, default=None),
            wall_s=wall_s,
            digest=digest,
            notes=(*self.notes, *([time_note] if time_note else ())),
        )

    def _add(self, role: str, content: Any, **known: Any) -> None:
        text = text_of(content)
        reasoning = known.pop("reasoning", None) or None
        pictures = n_pictures(content)
        if pictures:
            self._pictures[len(self.messages)] = pictures
        call_text = "".join(c.name + c.arguments for c in known.get("tool_calls", ()))
        self.messages.append(
            Message(
                index=len(self.messages),
                step_index=self.step,
                role=role,
                content=text,
                reasoning=reasoning,
                n_tokens=self.count(text) + (self.count(call_text) if call_text else 0),
                reasoning_tokens=self.count(reasoning) if reasoning else 0,
                n_lines=len(text.splitlines()),
                **known,
            )
        )


def text_of(content: Any) -> str:
    """Return a content as one text: a text, a list of parts (pictures left out), or nothing."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in parts if isinstance(text, str))
    return "" if content is None else str(content)


def command_of(call: ToolCall) -> str:
    """Return the shell command of a tool call, or its arguments where it runs none."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    for name in ("command", "cmd"):
        found = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(found, str):
            return found
        if isinstance(found, list):
            return str(found[-1]) if found[:1] in (["bash"], ["sh"], ["zsh"]) else " ".join(found)
    return call.arguments
