"""How far a replayed arm is from the cheapest schedule of removals (docs/methods.md).

Found on the recording's sizes and then replayed and priced as any arm is, so that both costs are
counted alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.accounting.best_schedule import Removable, best_schedule
from pipeline.accounting.break_even import Prices
from pipeline.replaying.replay import Recording, Replayed, Replayer
from pipeline.spec.pricing import PriceList
from pipeline.views.policy import Ask
from pipeline.views.shown import PLACEHOLDER, changed, content_edit, idle_s
from pipeline.views.trajectory import RECORDED, Edit, Edits, Part, Trajectory, merged
from pipeline.views.walk import Growing

MAX_CALLS = 150
"""The search takes half a second at so many, and eight times as long at twice as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """An edit that removes an output, and the first step call that may show it."""

    edit: Edit
    from_call: int


class Schedules:
    """The cheapest schedules on one recording, under one price list."""

    def __init__(self, recording: Recording, replayer: Replayer, prices: PriceList) -> None:
        self._recording, self._replayer = recording, replayer
        self._prices = Prices(
            input=prices.input, cached=prices.cached, output=prices.output, write=prices.written
        )
        self._elided = merged({}, (e for edits in recording.shared_edits.values() for e in edits))
        self._is_another_history = recording.n_repeated > 0 or any(
            edit.reason == RECORDED for edit in self._elided.values()
        )
        """Compacted, or begun in another file: sizes are not those of one growing history."""
        self._first_calls = _first_calls(recording)
        self._before = [0]
        """Tokens of the history before each message, and of all of it."""
        for message in recording.trajectory.messages:
            size = replayer.shown_tokens(message, self._elided)
            self._before.append(self._before[-1] + size)
        self._cold = [
            prices.ttl_s is not None and idle is not None and idle > prices.ttl_s
            for idle in _idle_times(recording)
        ]

    def cheapest(self) -> Replayed | None:
        """Return the cheapest schedule of all; None where the recording has too many calls."""
        return self._best(
            [
                Removal(
                    edit=content_edit(message, PLACEHOLDER, "schedule"),
                    from_call=self._first_calls[message.index] + 1,
                )
                for message in self._recording.trajectory.observations()
                if message.is_prunable and message.index in self._first_calls
            ]
        )

    def retimed(self, arm: Replayed) -> Replayed | None:
        """Return the cheapest schedule of an arm's own removals, none before the arm made it.

        None where the arm does more than put less text in place of outputs that were shown.
        """
        messages = self._recording.trajectory.messages
        removals = [
            Removal(edit=edit, from_call=call)
            for call, edits in enumerate(arm.edits_by_step)
            for edit in edits
        ]
        indexes = {r.edit.message_index for r in removals}
        is_schedule = len(indexes) == len(removals) and all(
            r.edit.part is Part.CONTENT
            and messages[r.edit.message_index].is_prunable
            and r.from_call > self._first_calls[r.edit.message_index]
            for r in removals
        )
        removals.sort(key=lambda r: r.edit.message_index)
        return self._best(removals) if is_schedule else None

    def _best(self, removals: Sequence[Removal]) -> Replayed | None:
        calls = self._recording.calls
        if len(calls) > MAX_CALLS or self._is_another_history:
            return None
        useful = [(r, saved) for r in removals if (saved := self._saved_tokens(r.edit)) > 0]
        moments = best_schedule(
            [
                Removable(
                    first_call=self._first_calls[r.edit.message_index],
                    from_call=r.from_call,
                    before_tokens=self._before[r.edit.message_index],
                    saved_tokens=saved,
                )
                for r, saved in useful
            ],
            self._sent_tokens(),
            self._prices,
            cold=self._cold,
        )
        due: dict[int, list[Edit]] = {}
        for (removal, _), call in zip(useful, moments, strict=True):
            if call is not None:
                due.setdefault(calls[call].n_messages, []).append(removal.edit)
        return self._replayer.replay_policy("cheapest schedule", _Scheduled(due))

    def _saved_tokens(self, edit: Edit) -> int:
        message = self._recording.trajectory.messages[edit.message_index]
        with_edit = self._replayer.shown_tokens(message, merged(self._elided, [edit]))
        return self._replayer.shown_tokens(message, self._elided) - with_edit

    def _sent_tokens(self) -> list[int]:
        """Return for each call what earlier ones sent, and the answer to the last of them."""
        n_messages = [call.n_messages for call in self._recording.calls]
        answered = [min(before + 1, now) for before, now in pairwise(n_messages)]
        return [self._before[n] for n in (0, *answered)]


def _first_calls(recording: Recording) -> dict[int, int]:
    """Return the first step call that shows each message, by its index."""
    found: dict[int, int] = {}
    for number, call in enumerate(recording.calls):
        found.update((index, number) for index in range(len(found), call.n_messages))
    return found


class _Scheduled:
    """Makes every edit at its moment, told by the number of messages."""

    def __init__(self, due: Mapping[int, Sequence[Edit]]) -> None:
        self._due = due

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        return changed(self._due.get(len(trajectory.messages), ()), standing)


def _idle_times(recording: Recording) -> Iterator[float | None]:
    history = Growing(recording.trajectory)
    for call in recording.calls:
        history.upto(call.n_messages)
        yield idle_s(history.trajectory)
