"""A published study that a sweep repeats: the settings it had, and which of them it has not here.

A sweep that carries a study's name carries its settings. What a site cannot give, or what was never
published, is said at launch and in the report instead of being left to the reader to find.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.fields.identity import Runtime


@dataclass(frozen=True, kw_only=True)
class PublishedStudy:
    """What the study says of itself."""

    source: Runtime[str]
    """Where it is published."""
    settings: Runtime[Mapping[str, Any]] = field(default_factory=dict)
    """Its values by the keys of a sweep, `*` for every name: `agents.*.step_limit: 200`."""
    remarks: Runtime[tuple[str, ...]] = ()
    """What cannot be repeated at all, in words."""


def differences(study: PublishedStudy, sweep: Mapping[str, Any]) -> list[str]:
    """Return what differs between a study and a sweep, one sentence each.

    Args:
        study: the published one.
        sweep: the sweep's spec as plain data.
    """
    found = [
        f"{key} is {_shown(value)}; the study had {_shown(wanted)}"
        for pattern, wanted in study.settings.items()
        for key, value in _values(sweep, pattern.split("."))
        if value != wanted
    ]
    return [*found, *study.remarks]


def _values(tree: Any, path: list[str], at: str = "") -> Iterator[tuple[str, Any]]:
    if not path:
        yield at, tree
        return
    first, *rest = path
    names = list(tree) if first == "*" else [first]
    for name in names:
        inside = tree.get(name) if isinstance(tree, Mapping) else None
        yield from _values(inside, rest, f"{at}.{name}" if at else name)


def _shown(value: Any) -> str:
    return "the model's own" if value is None else str(value)
