"""The file format of task lists."""

from __future__ import annotations

import re
from typing import Any

from taskgraph.graph import Graph, GraphError, Task

HEADER = re.compile(r"^task\s+(?P<name>[a-z][\w-]*)\s*(?::\s*(?P<needs>.*))?$")
SETTING = re.compile(r"^\s+(?P<key>[a-z]+)\s*=\s*(?P<value>.*)$")


class SpecError(ValueError):
    """A task list that cannot be read; the message starts with the line."""


def _names(text: str) -> "tuple[str, ...]":
    return tuple(part for part in re.split(r"[,\s]+", text.strip()) if part)


def _variables(text: str) -> "tuple[tuple[str, str], ...]":
    pairs = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or not name:
            raise ValueError(f"not NAME=VALUE: {part.strip()!r}")
        pairs.append((name, value))
    return tuple(pairs)


SETTINGS = {
    "run": ("command", str),
    "inputs": ("inputs", _names),
    "env": ("environment", _variables),
    "seconds": ("seconds", float),
    "priority": ("priority", int),
    "retries": ("retries", int),
}


def parse(text: str) -> Graph:
    """Return the graph written in `text`.

    Raises:
        SpecError: a line that cannot be read.
        GraphError: tasks that do not fit together.
    """
    drafts: "list[dict[str, Any]]" = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        header = HEADER.match(line)
        if header:
            drafts.append({"name": header["name"], "needs": _names(header["needs"] or "")})
            continue
        setting = SETTING.match(line)
        if setting is None:
            raise SpecError(f"line {number}: neither a task nor a setting: {line.strip()!r}")
        if not drafts:
            raise SpecError(f"line {number}: a setting before the first task")
        if setting["key"] not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise SpecError(f"line {number}: unknown setting {setting['key']!r}; one of {known}")
        name, read = SETTINGS[setting["key"]]
        try:
            drafts[-1][name] = read(setting["value"].strip())
        except ValueError as error:
            raise SpecError(f"line {number}: {error}") from None
    return Graph.of(Task(**draft) for draft in drafts)


def load(path: str) -> Graph:
    """Return the graph in a file; errors name the file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return parse(text)
    except (SpecError, GraphError) as error:
        raise SpecError(f"{path}: {error}") from error
