"""Layers of configuration: merging, looking up, interpolation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterator

from confkit.parser import UNSET, format_value, loads

REFERENCE = re.compile(r"\$\{(?P<key>[^}]*)\}")


class InterpolationError(ValueError):
    """A `${...}` that cannot be replaced."""


class MissingKey(KeyError):
    """A key that no layer has."""

    def __str__(self) -> str:
        return str(self.args[0])


def merge(base: "dict[str, Any]", over: "dict[str, Any]") -> "dict[str, Any]":
    """Return `base` with the values of `over` laid upon it, section by section.

    Neither argument is changed, and the result shares no section with them. A key whose value is
    UNSET in `over` is taken away. A section replaces a value, and a value a section.
    """
    result = dict(base)
    for key, value in over.items():
        if value is UNSET:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            target = result[key]
            for inner, inner_value in value.items():
                if isinstance(inner_value, dict) and isinstance(target.get(inner), dict):
                    target[inner] = merge(target[inner], inner_value)
                elif inner_value is UNSET:
                    target.pop(inner, None)
                else:
                    target[inner] = inner_value
        else:
            result[key] = value
    return result


def walk(tree: "dict[str, Any]", prefix: str = "") -> "Iterator[tuple[str, Any]]":
    """Yield every value with its dotted key, in the order of the tree."""
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from walk(value, path)
        else:
            yield path, value


def find(tree: "dict[str, Any]", key: str) -> Any:
    """Return the value or section at a dotted key.

    Raises:
        MissingKey: nothing is there.
    """
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            raise MissingKey(f"no key {key!r}")
        node = node[part]
    return node


def has(tree: "dict[str, Any]", key: str) -> bool:
    """Say whether something is at a dotted key."""
    try:
        find(tree, key)
    except MissingKey:
        return False
    return True


@dataclass(frozen=True)
class Layer:
    """One source of configuration and its name, which errors and `explain` show."""

    name: str
    tree: "dict[str, Any]"


@dataclass
class Layers:
    """Layers in order; a later one wins over the earlier ones."""

    layers: "list[Layer]" = field(default_factory=list)

    def add(self, name: str, tree: "dict[str, Any]") -> "Layers":
        """Put a layer on top; return self, so that calls can be chained."""
        if any(layer.name == name for layer in self.layers):
            raise ValueError(f"there is a layer {name!r} already")
        self.layers.append(Layer(name, tree))
        return self

    def add_text(self, name: str, text: str) -> "Layers":
        """Put a layer on top from text in the file format."""
        return self.add(name, loads(text, source=name))

    def add_overrides(self, assignments: "list[str]", name: str = "command line") -> "Layers":
        """Put a layer on top from `section.key=value` texts."""
        lines = []
        for assignment in assignments:
            key, equals, value = assignment.partition("=")
            if not equals:
                raise ValueError(f"not KEY=VALUE: {assignment!r}")
            section, _, last = key.strip().rpartition(".")
            lines.append((f"[{section}]\n" if section else "") + f"{last} = {value}")
        tree: "dict[str, Any]" = {}
        for line in lines:
            tree = merge(tree, loads(line, source=name))
        return self.add(name, tree)

    def merged(self) -> "dict[str, Any]":
        """Return all layers in one, `${...}` not yet replaced."""
        result: "dict[str, Any]" = {}
        for layer in self.layers:
            result = merge(result, layer.tree)
        return result

    def resolved(self) -> "dict[str, Any]":
        """Return all layers in one, with every `${...}` replaced."""
        tree = self.merged()
        return Interpolator(tree).tree()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the resolved value at a dotted key, or the default where there is none."""
        try:
            return find(self.resolved(), key)
        except MissingKey:
            return default

    def origin(self, key: str) -> "str | None":
        """Return the name of the layer that a key's value came from, None if it has no value."""
        for layer in reversed(self.layers):
            if has(layer.tree, key):
                return layer.name
        return None

    def explain(self, key: str) -> str:
        """Return what each layer says about a key, the winning one marked with `>`."""
        winner = self.origin(key)
        lines = []
        for layer in self.layers:
            if has(layer.tree, key):
                mark = ">" if layer.name == winner else " "
                lines.append(f"{mark} {layer.name}: {format_value(find(layer.tree, key))}")
        return "\n".join(lines) if lines else f"no layer has {key!r}"


class Interpolator:
    """Replaces `${section.key}` in the texts of a tree, and `$$` by a dollar sign."""

    def __init__(self, tree: "dict[str, Any]") -> None:
        self._tree = tree
        self._active: "list[str]" = []

    def tree(self) -> "dict[str, Any]":
        """Return a copy of the tree with everything replaced."""
        self._active = []
        return self._section(self._tree, "")

    def _section(self, section: "dict[str, Any]", prefix: str) -> "dict[str, Any]":
        result: "dict[str, Any]" = {}
        for key, value in section.items():
            path = f"{prefix}.{key}" if prefix else key
            if isinstance(value, dict):
                result[key] = self._section(value, path)
            else:
                self._active = [path]
                result[key] = self._value(value)
        return result

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, str):
            return self._text(value)
        return value

    def _text(self, text: str) -> Any:
        whole = REFERENCE.fullmatch(text)
        if whole:
            return self._lookup(whole["key"])
        replaced = REFERENCE.sub(lambda match: _shown(self._lookup(match["key"])), text)
        return replaced.replace("$$", "$")

    def _lookup(self, key: str) -> Any:
        key = key.strip()
        if key in self._active:
            chain = " -> ".join([*self._active, key])
            raise InterpolationError(f"{chain} goes round in a circle")
        try:
            value = find(self._tree, key)
        except MissingKey:
            raise InterpolationError(f"${{{key}}} in {self._active[0]}: no such key") from None
        if isinstance(value, dict):
            raise InterpolationError(f"${{{key}}} in {self._active[0]} is a section")
        self._active.append(key)
        return self._value(value)


def _shown(value: Any) -> str:
    """Return a value as it looks inside a text."""
    if value is None:
        return ""
    return format_value(value) if isinstance(value, (bool, list)) else str(value)
