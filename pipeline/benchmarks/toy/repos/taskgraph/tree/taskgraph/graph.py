"""The graph: tasks, what each depends on, and the orders that follow from it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Iterable, Iterator


class GraphError(ValueError):
    """A graph that cannot be: an unknown dependency, a name twice."""


class CycleError(GraphError):
    """Tasks that wait for each other; `cycle` names them, first and last the same."""

    def __init__(self, cycle: "list[str]") -> None:
        super().__init__("tasks wait for each other: " + " -> ".join(cycle))
        self.cycle = cycle


@dataclass(frozen=True)
class Task:
    """One piece of work.

    A higher priority goes first among tasks that are ready at the same time. `retries` is how
    often a failed task is run again, so that it runs `retries + 1` times at most.
    """

    name: str
    needs: "tuple[str, ...]" = ()
    command: str = ""
    inputs: "tuple[str, ...]" = ()
    environment: "tuple[tuple[str, str], ...]" = ()
    seconds: float = 1.0
    priority: int = 0
    retries: int = 0

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise GraphError(f"{self.name}: seconds must not be negative")
        if self.retries < 0:
            raise GraphError(f"{self.name}: retries must not be negative")


@dataclass
class Graph:
    """Tasks by name. Dependencies are checked by `check`, or when an order is asked for."""

    tasks: "dict[str, Task]" = field(default_factory=dict)

    @classmethod
    def of(cls, tasks: "Iterable[Task]") -> "Graph":
        """Return the graph of some tasks, checked."""
        graph = cls()
        for task in tasks:
            graph.add(task)
        graph.check()
        return graph

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> "Iterator[Task]":
        return iter(self.tasks.values())

    def __contains__(self, name: str) -> bool:
        return name in self.tasks

    def __getitem__(self, name: str) -> Task:
        try:
            return self.tasks[name]
        except KeyError:
            raise GraphError(f"no task {name!r}; there are {', '.join(sorted(self.tasks))}") from None

    def add(self, task: Task) -> None:
        """Add a task; its dependencies may follow later."""
        if task.name in self.tasks:
            raise GraphError(f"there is a task {task.name!r} already")
        self.tasks[task.name] = task

    def check(self) -> None:
        """Raise if a dependency is unknown or tasks wait for each other."""
        for task in self:
            for need in task.needs:
                if need not in self.tasks:
                    raise GraphError(f"{task.name} needs {need!r}, which is no task")
        self.order()

    def dependents(self) -> "dict[str, list[str]]":
        """Return for every task the tasks that need it directly, in the order of adding."""
        result: "dict[str, list[str]]" = {name: [] for name in self.tasks}
        for task in self:
            for need in dict.fromkeys(task.needs):
                result[need].append(task.name)
        return result

    def ancestors(self, name: str) -> "set[str]":
        """Return everything a task needs, directly or not, itself not included."""
        found: "set[str]" = set()
        waiting = list(self[name].needs)
        while waiting:
            need = waiting.pop()
            if need not in found:
                found.add(need)
                waiting.extend(self[need].needs)
        return found

    def descendants(self, name: str) -> "set[str]":
        """Return everything that needs a task, directly or not, itself not included."""
        direct = self.dependents()
        found: "set[str]" = set()
        waiting = list(direct[self[name].name])
        while waiting:
            dependent = waiting.pop()
            if dependent not in found:
                found.add(dependent)
                waiting.extend(direct[dependent])
        return found

    def order(self) -> "list[str]":
        """Return the names so that every task comes after what it needs.

        Among tasks that are ready at the same time the one with the highest priority comes first,
        then the one that was added first.

        Raises:
            CycleError: there is no such order.
        """
        missing = {task.name: len(set(task.needs)) for task in self}
        direct = self.dependents()
        ready = deque(name for name, count in missing.items() if count == 0)
        result: "list[str]" = []
        while ready:
            name = ready.popleft()
            result.append(name)
            for dependent in direct[name]:
                missing[dependent] -= 1
                if missing[dependent] == 0:
                    ready.append(dependent)
        if len(result) < len(self.tasks):
            raise CycleError(self._cycle({name for name, count in missing.items() if count > 0}))
        return result

    def _cycle(self, suspects: "set[str]") -> "list[str]":
        """Return one cycle among tasks that never became ready."""
        name = min(suspects)
        path: "list[str]" = []
        while name not in path:
            path.append(name)
            name = next(need for need in self[name].needs if need in suspects)
        return [*path[path.index(name) :], name]

    def levels(self) -> "list[list[str]]":
        """Return the tasks in waves: each needs only tasks of earlier waves."""
        depth: "dict[str, int]" = {}
        for name in self.order():
            depth[name] = 1 + max((depth[need] for need in self[name].needs), default=-1)
        waves: "list[list[str]]" = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for name, level in depth.items():
            waves[level].append(name)
        return waves

    def critical_path(self) -> "tuple[float, list[str]]":
        """Return the longest chain of tasks by seconds: how long it takes, and the names."""
        best: "dict[str, tuple[float, list[str]]]" = {}
        for name in self.order():
            task = self[name]
            before = max((best[need] for need in task.needs), default=(0.0, []), key=lambda b: b[0])
            best[name] = (before[0] + task.seconds, [*before[1], name])
        return max(best.values(), default=(0.0, []), key=lambda b: b[0])

    def subgraph(self, targets: "Iterable[str]") -> "Graph":
        """Return the graph of some tasks and everything they need."""
        wanted: "set[str]" = set()
        for target in targets:
            wanted |= {self[target].name} | self.ancestors(target)
        return Graph({name: task for name, task in self.tasks.items() if name in wanted})
