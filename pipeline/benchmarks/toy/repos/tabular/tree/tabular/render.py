"""Tables as text for people: aligned columns, Markdown."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

from tabular.table import Table

ELLIPSIS = "…"


@dataclass(frozen=True)
class Style:
    """How values look."""

    none: str = ""
    decimals: int = 2
    true: str = "yes"
    false: str = "no"
    max_width: "int | None" = None
    """Columns are cut to this width in cells of the terminal, an ellipsis included."""


def width(text: str) -> int:
    """Return how many cells of a terminal a text takes.

    East Asian wide characters take two cells, combining marks none.
    """
    return len(text)


def cut(text: str, limit: int) -> str:
    """Return a text of at most `limit` cells; what was cut is marked by an ellipsis."""
    if width(text) <= limit:
        return text
    out = ""
    for character in text:
        if width(out + character) > limit - 1:
            break
        out += character
    return out + ELLIPSIS


def pad(text: str, cells: int, right: bool = False) -> str:
    """Return a text filled up with blanks to a number of cells, on the left if `right`."""
    return text.rjust(cells) if right else text.ljust(cells)


def shown(value: Any, style: Style) -> str:
    """Return a value as text, without line breaks."""
    if value is None:
        return style.none
    if isinstance(value, bool):
        return style.true if value else style.false
    if isinstance(value, float):
        return f"{value:.{style.decimals}f}"
    text = " ".join(str(value).split("\n"))
    return text if style.max_width is None else cut(text, style.max_width)


def is_numeric(values: "list[Any]") -> bool:
    """Say whether a column is aligned to the right: numbers only, and one at least."""
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in present
    )


def _cells(table: Table, style: Style) -> "list[list[str]]":
    """Return the header and the rows as text."""
    body = [[shown(value, style) for value in row] for row in table.rows]
    return [list(table.columns), *body]


def _widths(cells: "list[list[str]]") -> "list[int]":
    return [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]


def text(table: Table, style: "Style | None" = None) -> str:
    """Return a table as aligned text with a rule under the header."""
    style = style or Style()
    cells = _cells(table, style)
    widths = _widths(cells)
    rights = [is_numeric(table.values(column)) for column in table.columns]
    lines = []
    for row in cells:
        padded = [pad(cell, w, right) for cell, w, right in zip(row, widths, rights)]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


def markdown(table: Table, style: "Style | None" = None) -> str:
    """Return a table in Markdown; columns of numbers are aligned to the right."""
    style = style or Style()
    cells = _cells(table, style)
    widths = [max(w, 3) for w in _widths(cells)]
    rights = [is_numeric(table.values(column)) for column in table.columns]

    def line(row: "list[str]") -> str:
        padded = [pad(cell, w, right) for cell, w, right in zip(row, widths, rights)]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * (w - 1) + ":" if right else "-" * w for w, right in zip(widths, rights)]
    return "\n".join([line(cells[0]), "| " + " | ".join(rule) + " |", *map(line, cells[1:])])


def bars(table: Table, label: str, value: str, cells: int = 40) -> str:
    """Return a bar for each row, as long as its value in proportion to the largest.

    Rows without a value get no bar; negative values are drawn as nothing.
    """
    names = [shown(name, Style()) for name in table.values(label)]
    numbers = table.values(value)
    largest = max((number for number in numbers if number is not None), default=0)
    name_width = max((width(name) for name in names), default=0)
    lines = []
    for name, number in zip(names, numbers):
        length = 0
        if number is not None and number > 0 and largest > 0:
            length = max(1, round(cells * number / largest))
        tail = "" if number is None else f" {shown(number, Style())}"
        lines.append(f"{pad(name, name_width)} |{'#' * length}{tail}")
    return "\n".join(lines)
