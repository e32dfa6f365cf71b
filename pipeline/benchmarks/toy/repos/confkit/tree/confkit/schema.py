"""What a configuration may contain: names, types, ranges, defaults."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Callable

from confkit.layers import find, has, walk

TYPES: "dict[str, tuple[type, ...]]" = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "flag": (bool,),
    "list": (list,),
}


class SchemaError(ValueError):
    """A configuration that breaks its schema; lists every problem."""

    def __init__(self, problems: "list[str]") -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Field:
    """One key: its type, and what else its value must satisfy."""

    key: str
    kind: str
    required: bool = False
    default: Any = None
    choices: "tuple[Any, ...]" = ()
    minimum: "float | None" = None
    maximum: "float | None" = None
    check: "Callable[[Any], str | None] | None" = None
    doc: str = ""

    def __post_init__(self) -> None:
        if self.kind not in TYPES:
            raise ValueError(f"{self.key}: unknown kind {self.kind!r}; one of {', '.join(TYPES)}")

    def problem_with(self, value: Any) -> "str | None":
        """Return what is wrong with a value, None if nothing is."""
        if isinstance(value, bool) and self.kind != "flag":
            return f"{self.key}: expected {self.kind}, got a flag"
        if not isinstance(value, TYPES[self.kind]):
            return f"{self.key}: expected {self.kind}, got {type(value).__name__} {value!r}"
        if self.choices and value not in self.choices:
            shown = ", ".join(str(choice) for choice in self.choices)
            return f"{self.key}: {value!r} is none of {shown}"
        if self.minimum is not None and value < self.minimum:
            return f"{self.key}: {value} is below {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"{self.key}: {value} is above {self.maximum}"
        return self.check(value) if self.check else None


@dataclass
class Schema:
    """The fields of a configuration."""

    fields: "list[Field]" = field(default_factory=list)
    open_sections: "tuple[str, ...]" = ()
    """Sections in which any key is welcome."""

    def names(self) -> "list[str]":
        """Return the dotted keys, in the order of the fields."""
        return [item.key for item in self.fields]

    def defaults(self) -> "dict[str, Any]":
        """Return a tree with every default; keys without one are left out."""
        tree: "dict[str, Any]" = {}
        for item in self.fields:
            if item.default is None:
                continue
            node = tree
            *sections, last = item.key.split(".")
            for section in sections:
                node = node.setdefault(section, {})
            node[last] = item.default
        return tree

    def problems(self, tree: "dict[str, Any]") -> "list[str]":
        """Return everything that is wrong with a configuration, unknown keys first."""
        known = set(self.names())
        found = []
        for key, _ in walk(tree):
            if key in known or self._open(key):
                continue
            near = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"{key}: unknown key{hint}")
        for item in self.fields:
            if not has(tree, item.key):
                if item.required:
                    found.append(f"{item.key}: required, but no layer gives it")
                continue
            value = find(tree, item.key)
            problem = None if value is None and not item.required else item.problem_with(value)
            if problem:
                found.append(problem)
        return found

    def validate(self, tree: "dict[str, Any]") -> "dict[str, Any]":
        """Return the tree unchanged if it keeps to the schema.

        Raises:
            SchemaError: it does not; the error lists every problem.
        """
        found = self.problems(tree)
        if found:
            raise SchemaError(found)
        return tree

    def document(self) -> str:
        """Return a text table of the fields for a manual."""
        rows = [("key", "kind", "default", "meaning")]
        for item in self.fields:
            default = "required" if item.required else str(item.default)
            rows.append((item.key, item.kind, default, item.doc))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip()
            for row in rows
        )

    def _open(self, key: str) -> bool:
        return any(key.startswith(section + ".") for section in self.open_sections)
