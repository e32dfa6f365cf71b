"""The mark of a record's field that is kept in a table: its meaning and its unit, said once.

`prompt_tokens: Annotated[int | None, Kept("As the server reports", "tokens")] = None` is the field,
the column of the same name, and its line in docs/records.md.
"""

import dataclasses
from functools import cache
from typing import Any, get_args, get_type_hints


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """This field is a column of the record's table."""

    doc: str
    unit: str = ""
    json: bool = False
    """A text that holds JSON."""


@cache
def kept_fields(record_type: type) -> dict[str, tuple[type, Kept]]:
    """Return the fields of a record that are columns, with their type (None aside) and mark."""
    found = {}
    for name, hint in get_type_hints(record_type, include_extras=True).items():
        mark = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Kept)), None)
        if mark is not None:
            plain = get_args(hint)[0]
            options = [option for option in get_args(plain) if option is not type(None)]
            found[name] = (options[0] if options else plain, mark)
    return found


def kept_values(record: Any) -> dict[str, Any]:
    """Return a record's columns and what they hold."""
    record_type: type = type(record)
    return {name: getattr(record, name) for name in kept_fields(record_type)}
