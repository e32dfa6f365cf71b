"""What makes a run *that* run: science fields are hashed, runtime fields are not.

Every field of every spec is declared `Science[...]` or `Runtime[...]`; a test fails when one is
neither. Science decides the result (a model's revision, an arm's parameters); runtime decides
where and how fast it is had (partition, concurrency, paths, ports).
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, TypeVar, get_type_hints

METHOD_VERSION = "1"
"""Part of every run id. Raised when the same science fields would give another result."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Mark:
    """Annotation that classifies a field."""

    kind: str


SCIENCE = Mark("science")
RUNTIME = Mark("runtime")

Science = Annotated[T, SCIENCE]
Runtime = Annotated[T, RUNTIME]


def marks_of(spec_type: type) -> dict[str, str | None]:
    """Return each field of a spec dataclass with its mark, None where it was left unmarked."""
    hints = get_type_hints(spec_type, include_extras=True)
    return {
        field.name: next(
            (m.kind for m in getattr(hints[field.name], "__metadata__", ()) if isinstance(m, Mark)),
            None,
        )
        for field in dataclasses.fields(spec_type)
    }


def science_of(value: Any) -> Any:
    """Return the science of `value` as plain JSON data; specs inside are reduced likewise.

    Raises:
        TypeError: a value that JSON cannot hold, or a spec with an unmarked field.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        marks = marks_of(type(value))
        unmarked = [name for name, mark in marks.items() if mark is None]
        if unmarked:
            raise TypeError(f"{type(value).__name__} has unmarked fields: {', '.join(unmarked)}")
        return {
            name: science_of(getattr(value, name))
            for name, mark in marks.items()
            if mark == SCIENCE.kind
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): science_of(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [science_of(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form for a {type(value).__name__}")


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest_of(value: Any, *, length: int = 12) -> str:
    """Return the first hex digits of the SHA-256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
