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
        known = sorted(set(_field_names(spec_type)))
        raise SpecError("\n".join(_problems(error, known))) from None
    return spec


def plain(spec: Any) -> Any:
    """Return a spec as mappings, lists and scalars that YAML and JSON can hold."""
    return _adapter(type(spec)).dump_python((spec,), mode="json")[0]  # type: ignore[arg-type]


def _problems(error: ValidationError, known: list[str]) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"][1:])
        if problem["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            yield f"{path}: unknown key{hint}"
        elif problem["type"] in {"missing", "missing_argument"}:
            yield f"{path}: missing"
        elif problem["type"] == "string_type" and isinstance(problem["input"], int | float):
            # 010 has become 8 by now, and 1.10 1.1: what was written is not known any more.
            yield f"{path}: is text; write it in quotes (YAML made {problem['input']!r} of it)"
        elif problem["type"] == "tuple_type":
            yield f"{path}: is a list, written [A, B] (got {problem['input']!r:.80})"
        else:
            yield f"{path}: {problem['msg']} (got {problem['input']!r:.80})"


def _field_names(spec_type: Any, seen: frozenset[Any] = frozenset()) -> Iterator[str]:
    """Yield the names of all fields of a spec and of the specs it holds."""
    if spec_type in seen:
        return
    if dataclasses.is_dataclass(spec_type):
        for name, hint in get_type_hints(spec_type, include_extras=True).items():
            yield name
            yield from _field_names(hint, seen | {spec_type})
    for inner in get_args(spec_type):
        if isinstance(inner, type) or get_args(inner):
            yield from _field_names(inner, seen)
