"""What the page shows of one session: cost as it grew, breaks, large outputs, what arms dropped."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline.records.foreign.instances import wordless
from pipeline.records.masking import masked
from pipeline.replaying.money import Break, SessionCost, Tariffs, recorded_cost
from pipeline.replaying.replay import Recording, Replayed, Replayer
from pipeline.replaying.replay_report import call_cost
from pipeline.views.trajectory import RECORDED, Edit, Message, Part, merged

LARGEST = 10
"""Outputs and drops that are listed."""
COMMAND_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """An output that stayed in the prompts."""

    call: int
    """The call that first showed it, from 1."""
    what: str
    """Tool and command; the tool alone where texts are left out."""
    tokens: int
    n_sent: int
    """Calls whose prompt held it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """What an arm took out."""

    arm: str
    n_edits: int
    tokens: int
    """Less than before, over all messages that it edited."""
    largest: tuple[Output, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFacts:
    """One session, for the page."""

    name: str
    agent: str
    model: str
    cost: SessionCost
    replayed_cost: float
    by_arm: Mapping[str, tuple[float, ...]]
    """Cost up to and including each step call, by arm; `recorded` among them where it is known."""
    breaks: tuple[Break, ...]
    compactions: tuple[int, ...]
    """Calls, from 0, before which the recording tool replaced or cleared history."""
    outputs: tuple[Output, ...]
    dropped: tuple[Dropped, ...]


def session_facts(
    recording: Recording,
    replayer: Replayer,
    results: Mapping[str, Replayed],
    cost: SessionCost,
    tariffs: Tariffs,
    *,
    no_text: bool,
) -> SessionFacts:
    """Return what the page shows of a session.

    Args:
        recording: the session.
        replayer: of it.
        results: every arm over it, the reference first.
        cost: what it cost.
        tariffs: of its calls.
        no_text: leave out whatever anybody wrote.
    """
    by_arm = {arm: tuple(_growing_cost(result, tariffs)) for arm, result in results.items()}
    own = [recorded_cost(c, tariffs.tariff(c.model)) for c in recording.own_calls]
    known = [one for one in own if one is not None]
    if len(known) == len(own):
        by_arm = {RECORDED: tuple(accumulate(known)), **by_arm}
    reference = next(iter(results.values()))
    return SessionFacts(
        name=wordless(recording.instance_id) if no_text else masked(recording.instance_id),
        agent=recording.agent,
        model=recording.model or "unknown",
        cost=cost,
        replayed_cost=math.fsum(call_cost(c, tariffs) for c in reference.calls),
        by_arm=by_arm,
        breaks=tuple(sorted(cost.breaks, key=lambda b: -b.cost)[:LARGEST]),
        compactions=tuple(
            k
            for k, c in enumerate(recording.own_calls)
            if any(e.reason == RECORDED for e in c.edits)
        ),
        outputs=tuple(_outputs(recording, replayer, recording.trajectory.observations(), no_text)),
        dropped=tuple(
            _dropped(arm, result, recording, replayer, no_text)
            for arm, result in results.items()
            if result is not reference
        ),
    )


def _growing_cost(result: Replayed, tariffs: Tariffs) -> Iterator[float]:
    """Yield the cost up to each step call, calls of the arm before it included."""
    total = 0.0
    for call in result.calls:
        total += call_cost(call, tariffs)
        if call.kind == "step":
            yield total


def _outputs(
    recording: Recording, replayer: Replayer, messages: Iterable[Message], no_text: bool
) -> Iterator[Output]:
    """Yield the largest of the messages that calls of this session sent."""
    ends = [call.n_messages for call in recording.calls]
    gone = _gone_at(recording)
    sized = sorted(((replayer.shown_tokens(m, {}), m) for m in messages), key=lambda p: -p[0])
    for tokens, message in sized[:LARGEST]:
        first = next((k for k, end in enumerate(ends) if end > message.index), None)
        if first is None:
            continue
        last = gone.get(message.index, len(ends))
        yield Output(
            call=max(first - recording.n_repeated, 0) + 1,
            what=_what(message, no_text),
            tokens=tokens,
            n_sent=max(0, last - max(first, recording.n_repeated)),
        )


def _gone_at(recording: Recording) -> dict[int, int]:
    """Return the call from which on the recording tool no longer showed a message."""
    gone: dict[int, int] = {}
    for number, call in enumerate(recording.calls):
        for edit in call.edits:
            if edit.reason == RECORDED:
                gone.setdefault(edit.message_index, number)
    return gone


def _what(message: Message, no_text: bool) -> str:
    tool = message.tool or message.role
    if no_text or not message.command:
        return tool
    command = " ".join(masked(message.command).split())
    short = command[:COMMAND_CHARACTERS] + ("…" if len(command) > COMMAND_CHARACTERS else "")
    return f"{tool}: {short}"


def _dropped(
    arm: str, result: Replayed, recording: Recording, replayer: Replayer, no_text: bool
) -> Dropped:
    messages = recording.trajectory.messages
    last: dict[int, list[Edit]] = {}
    for edit in result.edits:
        if edit.message_index < len(messages):
            last.setdefault(edit.message_index, []).append(edit)
    saved = sorted(
        ((_saved(replayer, messages[index], edits), index) for index, edits in last.items()),
        reverse=True,
    )
    return Dropped(
        arm=arm,
        n_edits=len(result.edits),
        tokens=sum(tokens for tokens, _ in saved),
        largest=tuple(
            Output(
                call=messages[index].step_index,
                what=_what(messages[index], no_text),
                tokens=tokens,
                n_sent=0,
            )
            for tokens, index in saved[:LARGEST]
        ),
    )


def _saved(replayer: Replayer, message: Message, edits: Sequence[Edit]) -> int:
    """Return what all edits of a message take out of it in the end."""
    standing = merged({}, edits)
    whole = replayer.shown_tokens(message, {})
    if (message.index, Part.DROPPED) in standing:
        return whole
    return whole - replayer.shown_tokens(message, standing)
