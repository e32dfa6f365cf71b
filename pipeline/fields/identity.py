"""What makes a run *that* run: science fields are hashed, runtime fields are not.

Every field of every spec is declared `Science[...]` or `Runtime[...]`; a test fails when one is
neither. Science decides the result (a model's revision, an arm's parameters); runtime decides
where and how fast the run executes (partition, concurrency, paths, ports).

Identity is additive, so that a finished sweep stays finished after an upgrade. A science field
that a spec gains later is declared with `added_science(pin)`: while it holds its pin, the value
under which all earlier runs were made, it is left out of the hash. A rule that changes while its
fields stay the same raises the `METHOD` of its spec class, which changes the ids of the runs that
hold such a part and of no other.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, TypeVar, get_type_hints

METHOD_VERSION = "1"
"""Part of every run id. Raised when every run of the same science would give another result."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Mark:
    """Annotation that classifies a field."""

    kind: str


SCIENCE = Mark("science")
RUNTIME = Mark("runtime")

Science = Annotated[T, SCIENCE]
Runtime = Annotated[T, RUNTIME]

_PIN = "pin"


def added_science(pin: T) -> T:
    """Declare a science field that a spec gained after runs had been made with it.

    `field: Science[int] = added_science(3)`: 3 is the default, and the value that is not hashed,
    for ever. Another value for new sweeps belongs in `conf/`.

    Args:
        pin: the value that describes the runs made before the field existed.
    """
    return dataclasses.field(default_factory=partial(deepcopy, pin), metadata={_PIN: pin})


@cache
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


@cache
def pins_of(spec_type: type) -> dict[str, Any]:
    """Return the pin of each field that was declared with `added_science`."""
    return {f.name: f.metadata[_PIN] for f in dataclasses.fields(spec_type) if _PIN in f.metadata}


def method_of(spec_type: type) -> int:
    """Return the version of the rules behind a spec class: its `METHOD`, or else 1."""
    return int(getattr(spec_type, "METHOD", 1))


@cache
def part_name(spec_type: type) -> str:
    """Return the name under which a spec's method is kept: a policy's kind, else the class name."""
    for field in dataclasses.fields(spec_type):
        if field.name == "kind" and isinstance(field.default, str):
            return field.default
    return spec_type.__name__


def science_of(value: Any) -> Any:
    """Return the whole science of `value` as plain JSON data, for comparing and for showing.

    Raises:
        TypeError: a value that JSON cannot hold, or a spec with an unmarked field.
    """
    if _is_spec(value):
        return {name: science_of(getattr(value, name)) for name in _science_fields(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): science_of(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [science_of(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form for a {type(value).__name__}")


def identity_of(value: Any, methods: Mapping[str, int] | None = None) -> Any:
    """Return what of the science is hashed: no field at its pin, and methods above 1.

    Args:
        value: a spec, or data that holds some.
        methods: part name to method version, as a lock recorded them (absent: 1); None: those of
            this version of the code.

    Raises:
        TypeError: as `science_of`.
    """
    if _is_spec(value):
        spec_type: type = type(value)
        pins = {name: identity_of(pin, {}) for name, pin in pins_of(spec_type).items()}
        fields = {
            name: identity_of(getattr(value, name), methods) for name in _science_fields(spec_type)
        }
        hashed = {n: held for n, held in fields.items() if n not in pins or held != pins[n]}
        method = method_of(spec_type) if methods is None else methods.get(part_name(spec_type), 1)
        return hashed if method == 1 else {**hashed, "METHOD": method}
    if isinstance(value, Mapping):
        return {str(key): identity_of(item, methods) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [identity_of(item, methods) for item in value]
    return science_of(value)


def methods_of(value: Any) -> dict[str, int]:
    """Return the method version of each part of `value`, where it is above 1."""
    return {
        part_name(spec_type): method_of(spec_type)
        for spec_type in parts_of(value)
        if method_of(spec_type) != 1
    }


def parts_of(value: Any) -> set[type]:
    """Return the spec classes whose values make up the science of `value`."""
    if _is_spec(value):
        inner = (parts_of(getattr(value, name)) for name in _science_fields(type(value)))
        return {type(value)}.union(*inner)
    if isinstance(value, Mapping):
        return set().union(*map(parts_of, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return set().union(*map(parts_of, value))
    return set()


def _is_spec(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _science_fields(spec_type: type) -> Iterator[str]:
    marks = marks_of(spec_type)
    unmarked = [name for name, mark in marks.items() if mark is None]
    if unmarked:
        raise TypeError(f"{spec_type.__name__} has unmarked fields: {', '.join(unmarked)}")
    return (name for name, mark in marks.items() if mark == SCIENCE.kind)


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest_of(value: Any, *, length: int = 12) -> str:
    """Return the first hex digits of the SHA-256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
