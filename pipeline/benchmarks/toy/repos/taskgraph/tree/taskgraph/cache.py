"""The cache: what a task's result depends on, as a fingerprint, and the results kept."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Callable, Iterable

from taskgraph.graph import Graph, Task

ReadFile = Callable[[str], "bytes | None"]
"""Returns the content of an input file, None where there is no such file."""


def digest(parts: "Iterable[bytes]") -> str:
    """Return the hex digest of some parts."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.hexdigest()


def fingerprint(graph: Graph, name: str, read: ReadFile) -> str:
    """Return a text that changes whenever the result of a task may change.

    The result depends on the command, the environment, the content of the inputs (and which of
    them exist), and on everything the task needs. It does not depend on priorities, retries, the
    expected seconds, the order in which inputs, variables or needs are written, or the names of
    tasks.
    """
    task = graph[name]
    parts = [task.command.encode()]
    for variable, value in task.environment:
        parts.append(variable.encode())
        parts.append(value.encode())
    for path in task.inputs:
        parts.append(path.encode())
        parts.append(read(path) or b"")
    for need in task.needs:
        parts.append(graph[need].command.encode())
    return digest(parts)


def fingerprints(graph: Graph, read: ReadFile) -> "dict[str, str]":
    """Return the fingerprint of every task, by name."""
    return {name: fingerprint(graph, name, read) for name in graph.order()}


@dataclass
class Cache:
    """Results by fingerprint; the least recently used go when it is full."""

    capacity: int = 128
    hits: int = 0
    misses: int = 0
    _entries: "OrderedDict[str, str]" = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError("a cache needs room for one entry at least")

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> "str | None":
        """Return what is kept under a fingerprint, and count the hit or miss."""
        if key not in self._entries:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: str, value: str) -> None:
        """Keep a result; the least recently used goes if there is no room."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def forget(self, keys: "Iterable[str]") -> int:
        """Drop some results; return how many were there."""
        return sum(self._entries.pop(key, None) is not None for key in list(keys))

    @property
    def rate(self) -> "float | None":
        """The share of hits among all questions; None before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


def stale(graph: Graph, cache: Cache, read: ReadFile) -> "list[str]":
    """Return the tasks that must run because their result is not in the cache, in order."""
    prints = fingerprints(graph, read)
    return [name for name in graph.order() if prints[name] not in cache]


def unused_inputs(graph: Graph, paths: "Iterable[str]") -> "list[str]":
    """Return the paths that are no task's input, sorted."""
    used = {path for task in graph for path in task.inputs}
    return sorted(set(paths) - used)


def shared_inputs(graph: Graph) -> "dict[str, list[str]]":
    """Return the inputs that several tasks read, with the tasks' names."""
    readers: "dict[str, list[str]]" = {}
    for task in graph:
        for path in dict.fromkeys(task.inputs):
            readers.setdefault(path, []).append(task.name)
    return {path: names for path, names in sorted(readers.items()) if len(names) > 1}


def describe(task: Task, read: ReadFile) -> str:
    """Return what a task's own fingerprint is made of, as text for people."""
    lines = [f"command: {task.command}"]
    lines.extend(f"variable: {name}={value}" for name, value in task.environment)
    for path in task.inputs:
        content = read(path)
        state = "missing" if content is None else f"{len(content)} bytes"
        lines.append(f"input: {path} ({state})")
    lines.extend(f"needs: {need}" for need in task.needs)
    return "\n".join(lines)
