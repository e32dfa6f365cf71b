"""Delimited text: reading, guessing types, writing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tabular.table import Table

INTEGER = re.compile(r"^[-+]?(?:0|[1-9]\d*)$")
NUMBER = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
FLAGS = {"true": True, "false": False}
EMPTY = ("", "NA", "N/A", "null")


class ReadError(ValueError):
    """Text that is no table; the message starts with the line."""


@dataclass(frozen=True)
class Dialect:
    """How the text is written."""

    delimiter: str = ","
    quote: str = '"'
    comment: str = "#"
    header: bool = True

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or len(self.quote) != 1:
            raise ValueError("delimiter and quote are one character each")


def sniff(sample: str) -> Dialect:
    """Return the dialect whose delimiter splits the first lines into equally many fields."""
    lines = [line for line in sample.splitlines()[:20] if line and not line.startswith("#")]
    best, best_count = ",", 0
    for delimiter in ",;\t|":
        counts = {line.count(delimiter) for line in lines}
        if len(counts) == 1 and max(counts) > best_count:
            best, best_count = delimiter, max(counts)
    return Dialect(delimiter=best)


@dataclass
class _Field:
    """A field as it was written: quoted fields keep their type, which is text."""

    text: str
    quoted: bool


def _split_line(line: str, dialect: Dialect, line_number: int) -> "list[_Field]":
    """Return the fields of one line.

    A field in quotes may hold delimiters, and a quote written twice. Blanks around a field that is
    not quoted do not count.
    """
    fields: "list[_Field]" = []
    current = ""
    quoted = False
    inside = False
    for character in line:
        if inside:
            if character == dialect.quote:
                inside = False
            else:
                current += character
        elif character == dialect.quote and not current.strip():
            inside = True
            quoted = True
            current = ""
        elif character == dialect.delimiter:
            fields.append(_Field(current if quoted else current.strip(), quoted))
            current = ""
            quoted = False
        else:
            current += character
    if inside:
        raise ReadError(f"line {line_number}: the quote is never closed")
    fields.append(_Field(current if quoted else current.strip(), quoted))
    return fields


def value_of(text: str) -> Any:
    """Return the value that a field without quotes stands for.

    None for an empty field, a whole number, another number, a flag, or else the text. Numbers with
    leading zeros stay text, since they are codes (`00420`).
    """
    if text in EMPTY:
        return None
    if INTEGER.match(text):
        return int(text)
    if NUMBER.match(text) and not re.match(r"^[-+]?0\d", text):
        return float(text)
    return FLAGS.get(text.lower(), text)


def _records(text: str, dialect: Dialect) -> "list[tuple[int, list[_Field]]]":
    """Return the records of a text, each with the number of its first line."""
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith(dialect.comment):
            continue
        records.append((number, _split_line(line, dialect, number)))
    return records


def _names(fields: "list[_Field]", line_number: int) -> "list[str]":
    names = [field.text for field in fields]
    for name in names:
        if not name:
            raise ReadError(f"line {line_number}: a column without a name")
        if names.count(name) > 1:
            raise ReadError(f"line {line_number}: two columns are named {name!r}")
    return names


def read(text: str, dialect: "Dialect | None" = None) -> Table:
    """Return the table in a text.

    Without a dialect it is guessed from the first lines. Without a header the columns are named
    `c1`, `c2`, ...

    Raises:
        ReadError: a quote that is never closed, a record with too few or too many fields, a bad
            header, or no record at all.
    """
    dialect = dialect or sniff(text)
    records = _records(text, dialect)
    if not records:
        raise ReadError("line 1: there is nothing to read")
    if dialect.header:
        names = _names(records[0][1], records[0][0])
        records = records[1:]
    else:
        names = [f"c{index}" for index in range(1, len(records[0][1]) + 1)]
    rows = []
    for number, fields in records:
        if len(fields) != len(names):
            raise ReadError(f"line {number}: {len(fields)} fields, but {len(names)} columns")
        rows.append(tuple(f.text if f.quoted else value_of(f.text) for f in fields))
    return Table(names, rows)


def _written(value: Any, dialect: Dialect) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    special = (dialect.delimiter, dialect.quote)
    if any(c in value for c in special) or value != value.strip() or value_of(value) != value:
        return f"{dialect.quote}{value}{dialect.quote}"
    return value


def write(table: Table, dialect: "Dialect | None" = None) -> str:
    """Return a table as text that `read` turns back into the same table."""
    dialect = dialect or Dialect()
    lines = []
    if dialect.header:
        lines.append(dialect.delimiter.join(_written(name, dialect) for name in table.columns))
    for row in table.rows:
        lines.append(dialect.delimiter.join(_written(value, dialect) for value in row))
    return "\n".join(lines) + "\n"
