"""The removals of outputs that a finished run could have had, and those that its arm made.

The step calls are counted from 0; a removal at a call is in force from its prompt on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.accounting.best_schedule import Removable
from pipeline.views.shown import PLACEHOLDER, content_edit
from pipeline.views.trajectory import Edit, Message, Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """Less text in place of an output that the model has seen."""

    edit: Edit
    from_call: int
    """The first step call that may show it."""


class StepHistory:
    """The messages of a finished run, and when they were sent."""

    def __init__(
        self, messages: Sequence[Message], sizes: Sequence[int], n_messages: Sequence[int]
    ) -> None:
        """Take the messages.

        Args:
            messages: in order.
            sizes: tokens of each as it is shown when nothing is removed.
            n_messages: for each step call, how many of the messages there were.
        """
        self._messages = messages
        self._before = [0]
        for size in sizes:
            self._before.append(self._before[-1] + size)
        self._first_calls: dict[int, int] = {}
        for call, n in enumerate(n_messages):
            self._first_calls.update((k, call) for k in range(len(self._first_calls), n))
        answered = [min(before + 1, now) for before, now in pairwise(n_messages)]
        self.sent_tokens = [self._before[n] for n in (0, *answered)] if n_messages else []
        """For each call, what earlier ones sent, and the answer to the last of them."""

    def possible(self) -> Iterator[Removal]:
        """Yield the removal of each output from the call on that follows the first to show it."""
        for message in self._messages:
            call = self._first_calls.get(message.index)
            if message.is_prunable and call is not None:
                edit = content_edit(message, PLACEHOLDER, "schedule")
                yield Removal(edit=edit, from_call=call + 1)

    def made(self, edits_by_step: Sequence[Sequence[Edit]]) -> list[Removal] | None:
        """Return the removals that an arm made; None where it did anything else as well."""
        removals = [
            Removal(edit=edit, from_call=call)
            for call, edits in enumerate(edits_by_step)
            for edit in edits
        ]
        removals.sort(key=lambda r: r.edit.message_index)
        is_plain = all(map(self._is_removal, removals)) and all(
            a.edit.message_index != b.edit.message_index for a, b in pairwise(removals)
        )
        return removals if is_plain else None

    def removables(
        self, removals: Sequence[Removal], saved_tokens: Callable[[Edit], int]
    ) -> list[Removable]:
        """Return the removals as `best_schedule` takes them.

        Args:
            removals: in the order of the history.
            saved_tokens: what an edit saves in every prompt.
        """
        return [
            Removable(
                first_call=self._first_calls[r.edit.message_index],
                from_call=r.from_call,
                before_tokens=self._before[r.edit.message_index],
                saved_tokens=saved_tokens(r.edit),
            )
            for r in removals
        ]

    def _is_removal(self, removal: Removal) -> bool:
        index = removal.edit.message_index
        is_output = removal.edit.part is Part.CONTENT and self._messages[index].is_prunable
        return is_output and removal.from_call > self._first_calls.get(index, removal.from_call)
