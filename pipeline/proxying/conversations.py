"""Which conversation a request belongs to: the one whose list it goes on with.

A list that begins with all of a conversation's last one belongs to it. Where nothing else tells two
conversations apart (the same task twice), the answer that the list repeats does. A list that did
not just grow begins a trajectory of its own, and a note says what it did to which one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.proxying.answer import says_the_same
from pipeline.proxying.client_list import ClientMessage, digests_of, role_of
from pipeline.proxying.conversation import Conversation

GRACE_S = 2.0
"""How long a list that goes on waits for the conversation's last answer to be on record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a new trajectory comes from."""

    note: str = ""
    """What its list did, if it did not just begin; for people."""
    continues: str | None = None
    """The run that it took up."""


class Conversations:
    """All conversations of a proxy. Safe to use from several threads."""

    def __init__(self, closed: dict[bytes, str]) -> None:
        """Start with the ends of runs that were closed before, by the digest of their list."""
        self._closed = dict(closed)
        self._seen: dict[bytes, str] = {}
        self._open: dict[bytes, list[Conversation]] = {}
        self._ends: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def take(
        self,
        messages: Sequence[ClientMessage],
        instance: str | None,
        start: Callable[[Origin], Conversation],
    ) -> tuple[Conversation, bytes]:
        """Return the conversation of the list, busy from now on, and the digest of the list.

        Args:
            messages: the client's list.
            instance: the name by which the client was told to call; conversations keep to theirs.
            start: begins a conversation.
        """
        digests = digests_of([{"role": "instance", "content": instance}, *messages])[1:]
        deadline = time.monotonic() + GRACE_S
        with self._changed:
            while True:
                found = self._gone_on_with(digests, messages)
                if found is None or not found.busy:
                    break
                if not self._changed.wait(deadline - time.monotonic()):
                    found = None
                    break
            if found is None:
                found = start(self._origin(digests, messages))
            self._move(found, digests)
            found.busy = True
        return found, digests[-1]

    def give_back(self, conversation: Conversation) -> None:
        """Let the next request have the conversation."""
        with self._changed:
            conversation.busy = False
            self._changed.notify_all()

    def close(
        self, older_than: float = float("inf"), *, with_busy: bool = False
    ) -> Iterator[Conversation]:
        """Forget conversations that were last used before `older_than`, and yield them."""
        with self._changed:
            found = [
                conversation
                for group in self._open.values()
                for conversation in group
                if conversation.last_used_at < older_than and (with_busy or not conversation.busy)
            ]
            for conversation in found:
                end = self._ends.pop(conversation.head.run_id)
                self._open[end].remove(conversation)
                self._closed[end] = conversation.head.run_id
        yield from found

    def n_busy(self) -> int:
        """Return how many requests are being answered."""
        with self._changed:
            return self._n_busy()

    def wait_idle(self, timeout_s: float) -> None:
        """Return once no request is being answered, or after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_busy() == 0, timeout_s)

    def _n_busy(self) -> int:
        return sum(c.busy for group in self._open.values() for c in group)

    def _gone_on_with(
        self, digests: Sequence[bytes], messages: Sequence[ClientMessage]
    ) -> Conversation | None:
        """Return the conversation of which the list is the next one, or the last one repeated."""
        for length in range(len(messages), 0, -1):
            group = self._open.get(digests[length], ())
            if length == len(messages):
                # A request without an answer is sent again; with one, it is another run's. A client
                # can be told of a failure and ask again before the conversation is given back.
                group = [c for c in group if not c.is_answered and (c.has_failed or not c.busy)]
            if group:
                return max(group, key=lambda c: (self._fits(c, messages[length:]), not c.busy))
        return None

    def _fits(self, conversation: Conversation, added: Sequence[ClientMessage]) -> bool:
        """Return whether the list repeats the conversation's answer."""
        if not added or role_of(added[0]) != "assistant" or not conversation.calls:
            return False
        return says_the_same(conversation.calls[-1], added[0])

    def _move(self, conversation: Conversation, digests: Sequence[bytes]) -> None:
        run_id = conversation.head.run_id
        before = self._ends.get(run_id)
        if before is not None:
            self._open[before].remove(conversation)
            if not self._open[before]:
                del self._open[before]
        self._ends[run_id] = digests[-1]
        self._open.setdefault(digests[-1], []).append(conversation)
        for digest in digests[1:]:
            self._seen.setdefault(digest, run_id)

    def _origin(self, digests: Sequence[bytes], messages: Sequence[ClientMessage]) -> Origin:
        for length in range(len(messages), 0, -1):
            digest = digests[length]
            closed, seen = self._closed.get(digest), self._seen.get(digest)
            if closed is not None and length < len(messages):
                note = f"it goes on with {closed}, which was closed"
                return Origin(note=note, continues=closed)
            if seen is None:
                continue
            if not any(role_of(message) == "assistant" for message in messages[:length]):
                break
            if length == len(messages):
                note = f"it is a list, or the beginning of one, that {seen} had sent"
            else:
                note = f"it has another message {length} (from 0) than {seen}, or branches there"
            return Origin(note=note, continues=seen)
        return Origin()
