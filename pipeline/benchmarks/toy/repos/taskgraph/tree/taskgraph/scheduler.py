"""The scheduler: several workers, priorities, retries, on a simulated clock."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import Enum
from typing import Callable

from taskgraph.graph import Graph, Task


class State(Enum):
    """How a task ended."""

    DONE = "done"
    CACHED = "cached"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    `started` and `ended` are seconds on the simulated clock, of the last attempt; a task that was
    skipped has neither. `blamed` is the failed task because of which it was skipped.
    """

    name: str
    state: State
    attempts: int = 0
    started: "float | None" = None
    ended: "float | None" = None
    worker: "int | None" = None
    blamed: "str | None" = None


Run = Callable[[Task, int], bool]
"""Runs the given attempt (1, 2, ...) of a task; says whether it succeeded."""


@dataclass
class Backoff:
    """How long to wait before an attempt: `first * factor ** (attempt - 2)`, `limit` at most."""

    first: float = 0.0
    factor: float = 2.0
    limit: float = 60.0

    def before(self, attempt: int) -> float:
        """Return the seconds to wait before an attempt; the first attempt never waits."""
        if attempt <= 1 or self.first == 0:
            return 0.0
        return min(self.first * self.factor ** (attempt - 1), self.limit)


@dataclass(order=True)
class _Ready:
    """A task that may start, in the order in which workers take them."""

    at: float
    priority: int
    position: int
    name: str = field(compare=False)
    attempt: int = field(compare=False, default=1)


@dataclass(order=True)
class _Running:
    """A task at work until `ends`."""

    ends: float
    position: int
    name: str = field(compare=False)
    attempt: int = field(compare=False)
    started: float = field(compare=False)
    worker: int = field(compare=False)


class Scheduler:
    """Runs a graph once.

    Workers take what is ready: the earliest first, then the highest priority, then the task that
    was added first. A task that fails is tried again `retries` times, after the backoff; when it
    has failed for good, everything that needs it, directly or not, is skipped.
    """

    def __init__(
        self,
        graph: Graph,
        run: Run,
        *,
        workers: int = 1,
        backoff: "Backoff | None" = None,
        is_cached: "Callable[[Task], bool] | None" = None,
    ) -> None:
        if workers < 1:
            raise ValueError("at least one worker is needed")
        graph.check()
        self._graph = graph
        self._run = run
        self._backoff = backoff or Backoff()
        self._is_cached = is_cached or (lambda task: False)
        self._positions = {name: index for index, name in enumerate(graph.tasks)}
        self._missing = {task.name: len(set(task.needs)) for task in graph}
        self._dependents = graph.dependents()
        self._free = list(range(workers))
        self._ready: "list[_Ready]" = []
        self._running: "list[_Running]" = []
        self._outcomes: "dict[str, Outcome]" = {}
        self._now = 0.0

    def run(self) -> "dict[str, Outcome]":
        """Run everything that can run; return the outcome of every task, by name."""
        roots = [name for name, count in self._missing.items() if count == 0]
        for name in roots:
            self._make_ready(name, self._now)
        while self._ready or self._running:
            self._start_what_can_start()
            self._advance()
        return {name: self._outcomes[name] for name in self._graph.tasks}

    @property
    def now(self) -> float:
        """The simulated time, in seconds since the start."""
        return self._now

    def _make_ready(self, name: str, at: float, attempt: int = 1) -> None:
        task = self._graph[name]
        if attempt == 1 and self._is_cached(task):
            self._outcomes[name] = Outcome(name, State.CACHED, 0, at, at)
            self._release(name)
            return
        position = self._positions[name]
        heapq.heappush(self._ready, _Ready(at, task.priority, position, name, attempt))

    def _start_what_can_start(self) -> None:
        while self._free and self._ready and self._ready[0].at <= self._now:
            item = heapq.heappop(self._ready)
            worker = self._free.pop(0)
            ends = self._now + self._graph[item.name].seconds
            heapq.heappush(
                self._running,
                _Running(ends, item.position, item.name, item.attempt, self._now, worker),
            )

    def _advance(self) -> None:
        """Go to the next moment at which something happens."""
        moments = [self._running[0].ends] if self._running else []
        if self._ready and self._free:
            moments.append(self._ready[0].at)
        if not moments:
            return
        self._now = max(self._now, min(moments))
        while self._running and self._running[0].ends <= self._now:
            self._finish(heapq.heappop(self._running))

    def _finish(self, item: _Running) -> None:
        self._free.append(item.worker)
        self._free.sort()
        task = self._graph[item.name]
        if self._run(task, item.attempt):
            self._outcomes[item.name] = Outcome(
                item.name, State.DONE, item.attempt, item.started, self._now, item.worker
            )
            self._release(item.name)
        elif item.attempt < task.retries:
            following = item.attempt + 1
            self._make_ready(item.name, self._now + self._backoff.before(following), following)
        else:
            self._outcomes[item.name] = Outcome(
                item.name, State.FAILED, item.attempt, item.started, self._now, item.worker
            )
            self._skip_dependents(item.name)

    def _release(self, name: str) -> None:
        """Make ready what waited only for this task."""
        for dependent in self._dependents[name]:
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0:
                self._make_ready(dependent, self._now)

    def _skip_dependents(self, name: str) -> None:
        """Skip everything that needs a failed task."""
        for dependent in sorted(self._graph.descendants(name), key=self._positions.__getitem__):
            self._outcomes.setdefault(dependent, Outcome(dependent, State.SKIPPED, blamed=name))


def timetable(outcomes: "dict[str, Outcome]") -> str:
    """Return outcomes as text, one line for each task in the order of starting."""
    lines = []
    ordered = sorted(
        outcomes.values(),
        key=lambda o: (o.started is None, o.started or 0.0, o.worker or 0),
    )
    for outcome in ordered:
        if outcome.started is None or outcome.ended is None:
            lines.append(f"{'-':>8} {'-':>8}    {outcome.name} ({outcome.state.value}: {outcome.blamed})")
            continue
        place = "" if outcome.worker is None else f" on {outcome.worker}"
        tries = f", attempt {outcome.attempts}" if outcome.attempts > 1 else ""
        lines.append(
            f"{outcome.started:8.1f} {outcome.ended:8.1f}    "
            f"{outcome.name} ({outcome.state.value}{place}{tries})"
        )
    return "\n".join(lines)


def summary(outcomes: "dict[str, Outcome]") -> "dict[str, int]":
    """Return how many tasks ended in each state, by the state's name; zeros are included."""
    counts = {state.value: 0 for state in State}
    for outcome in outcomes.values():
        counts[outcome.state.value] += 1
    return counts
