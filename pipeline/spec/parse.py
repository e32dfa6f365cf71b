"""The one gate through which plain data becomes specs, and back.

Nothing else builds a spec from a file. A key that no spec knows is an error that names it and the
nearest known one; a value of the wrong kind is one that shows what was given.
"""

import dataclasses
import difflib
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")


class SpecError(ValueError):
    """Configuration that no spec accepts; the message lists every problem at once."""


_CONFIG = ConfigDict(extra="forbid")


@cache
def _adapter(spec_type: Any) -> TypeAdapter[Any]:
    # Pydantic takes no config beside a dataclass, but hands a tuple's config down to one. (A class
    # is hashable; mypy doubts it of `type[T]`, hence the ignores below.)
    return TypeAdapter(tuple[spec_type], config=_CONFIG)


def parsed(spec_type: type[T], data: Any) -> T:
    """Return `data` (mappings, lists, scalars) as `spec_type`.

    Raises:
        SpecError: unknown keys, missing keys or wrong types; all of them, each with its path.
    """
    try:
        spec: T = _adapter(spec_type).validate_python((data,))[0]  # type: ignore[arg-type]
    except ValidationError as error:
        raise SpecError("\n".join(_problems(error, set(_fields(spec_type))))) from None
    return spec


def plain(spec: Any) -> Any:
    """Return a spec as mappings, lists and scalars that YAML and JSON can hold."""
    return _adapter(type(spec)).dump_python((spec,), mode="json")[0]  # type: ignore[arg-type]


def _problems(error: ValidationError, known: set[tuple[str, str]]) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"][1:])
        if problem["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            given = str(problem["loc"][-1])
            near = difflib.get_close_matches(given, sorted(name for name, _ in known), n=1)
            # A known name in a wrong place is said with its own.
            meant = sorted(at for name, at in known if name == given) or near
            hint = f"; did you mean {' or '.join(f'`{name}`' for name in meant)}?" if near else ""
            yield f"{path}: unknown key{hint}"
        elif problem["type"] in {"missing", "missing_argument"}:
            yield f"{path}: missing"
        elif problem["type"] == "string_type" and isinstance(problem["input"], int | float):
            # 010 has become 8 by now, and 1.10 1.1: what was written is not known any more.
            yield f"{path}: is text; write it in quotes (YAML made {problem['input']!r} of it)"
        elif problem["type"] == "tuple_type":
            yield f"{path}: is a list, written [A, B] (got {problem['input']!r:.80})"
        else:
            said = problem["msg"].removeprefix("Value error, ")
            # Of a whole spec the beginning would say nothing.
            given = "" if isinstance(problem["input"], dict) else f" (got {problem['input']!r:.80})"
            yield f"{path}: {said}{given}" if path else f"{said}{given}"


def _fields(
    spec_type: Any, seen: frozenset[Any] = frozenset(), place: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the name of every field of a spec and of the specs it holds, with its place."""
    if spec_type in seen:
        return
    if dataclasses.is_dataclass(spec_type):
        for name, hint in get_type_hints(spec_type, include_extras=True).items():
            yield name, f"{place}{name}"
            yield from _fields(hint, seen | {spec_type}, f"{name}.")
    for inner in get_args(spec_type):
        if isinstance(inner, type) or get_args(inner):
            yield from _fields(inner, seen, place)
