"""How far a replayed arm is from the cheapest schedule of removals.

See docs/methods.md, Cheapest schedule.

The schedule is found on the sizes of the recording and then replayed and priced as any arm is, so
that both costs are counted alike.
"""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.accounting.best_schedule import MAX_CALLS, best_schedule
from pipeline.accounting.break_even import Prices
from pipeline.accounting.removals import Removal, StepHistory
from pipeline.replaying.replay import Recording, Replayed, Replayer
from pipeline.spec.pricing import PriceList
from pipeline.views.policy import Ask
from pipeline.views.shown import changed, is_cold
from pipeline.views.trajectory import RECORDED, Edit, Edits, Trajectory, merged
from pipeline.views.walk import Growing


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
        messages = recording.trajectory.messages
        self._history = StepHistory(
            messages,
            [replayer.shown_tokens(message, self._elided) for message in messages],
            [call.n_messages for call in recording.calls],
        )
        self._cold = list(_cold_calls(recording, prices.ttl_s))

    def cheapest(self) -> Replayed | None:
        """Return the cheapest schedule of all; None where the recording has too many calls."""
        return self._best(list(self._history.possible()))

    def retimed(self, arm: Replayed) -> Replayed | None:
        """Return the cheapest schedule of an arm's own removals, none before the arm made it.

        None where the arm does more than put less text in place of outputs that were shown.
        """
        removals = self._history.made(arm.edits_by_step)
        return None if removals is None else self._best(removals)

    def _best(self, removals: Sequence[Removal]) -> Replayed | None:
        calls = self._recording.calls
        if len(calls) > MAX_CALLS or self._is_another_history:
            return None
        useful = [r for r in removals if self._saved_tokens(r.edit) > 0]
        moments = best_schedule(
            self._history.removables(useful, self._saved_tokens),
            self._history.sent_tokens,
            self._prices,
            cold=self._cold,
        )
        due: dict[int, list[Edit]] = {}
        for removal, call in zip(useful, moments, strict=True):
            if call is not None:
                due.setdefault(calls[call].n_messages, []).append(removal.edit)
        return self._replayer.replay_policy("cheapest schedule", _Scheduled(due))

    def _saved_tokens(self, edit: Edit) -> int:
        message = self._recording.trajectory.messages[edit.message_index]
        with_edit = self._replayer.shown_tokens(message, merged(self._elided, [edit]))
        return self._replayer.shown_tokens(message, self._elided) - with_edit


class _Scheduled:
    """Makes every edit at its moment, told by the number of messages."""

    def __init__(self, due: Mapping[int, Sequence[Edit]]) -> None:
        self._due = due

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        return changed(self._due.get(len(trajectory.messages), ()), standing)


def _cold_calls(recording: Recording, ttl_s: float | None) -> Iterator[bool]:
    history = Growing(recording.trajectory)
    for call in recording.calls:
        history.grow_to(call.n_messages)
        yield is_cold(history.trajectory, ttl_s)
