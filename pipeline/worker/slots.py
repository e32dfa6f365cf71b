"""Concurrent work in one process: a thread for each run or grade in flight.

Threads are daemons, so that a call which does not return cannot keep a worker from exiting after
its grace. Results arrive in one queue, where signal handlers and everything else that wakes the
worker's loop arrive too.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Finished(Generic[Item, Result]):
    """What came of an item."""

    item: Item
    result: Result | None
    """None: its thread died of an error that nobody expected; the traceback is in the log."""


class Slots(Generic[Item, Result]):
    """At most `n` items worked on at once. To be used from one thread."""

    def __init__(self, n: int, work: Callable[[Item], Result]) -> None:
        """Prepare `n` slots; `work` is called in threads of its own."""
        self.inbox: SimpleQueue[Finished[Item, Result] | None] = SimpleQueue()
        """None: nothing finished, but something happened that is worth a look."""
        self._n = n
        self._work = work
        self.n_busy = 0

    @property
    def has_free(self) -> bool:
        """Whether another item can be started."""
        return self.n_busy < self._n

    def start(self, item: Item) -> None:
        """Start working on `item`."""
        self.n_busy += 1
        threading.Thread(target=self._run, args=(item,), name="slot", daemon=True).start()

    def wait(self, timeout_s: float) -> Finished[Item, Result] | None:
        """Return what finished next, None after `timeout_s` or when woken."""
        try:
            event = self.inbox.get(timeout=timeout_s)
        except Empty:
            return None
        if event is not None:
            self.n_busy -= 1
        return event

    def _run(self, item: Item) -> None:
        result = None
        try:
            result = self._work(item)
        finally:
            self.inbox.put(Finished(item, result))
