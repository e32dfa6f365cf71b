"""The table: columns, rows, and what can be done with them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

Row = "tuple[Any, ...]"


class TableError(ValueError):
    """Something a table cannot do: an unknown column, rows of another width."""


AGGREGATES: "dict[str, Callable[[list[Any]], Any]]" = {
    "count": len,
    "sum": lambda values: sum(values) if values else None,
    "min": lambda values: min(values) if values else None,
    "max": lambda values: max(values) if values else None,
    "mean": lambda values: sum(values) / len(values) if values else None,
}
"""Functions over the values of a group; None is left out of the values before."""


@dataclass
class Table:
    """Rows under named columns. Methods return new tables and leave this one as it is."""

    columns: "list[str]"
    rows: "list[tuple[Any, ...]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = list(self.columns)
        self.rows = [tuple(row) for row in self.rows]
        if len(set(self.columns)) < len(self.columns):
            raise TableError(f"a column is named twice: {', '.join(self.columns)}")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise TableError(f"row {number}: {len(row)} values for {len(self.columns)} columns")

    @classmethod
    def of(cls, records: "list[dict[str, Any]]") -> "Table":
        """Return a table from dicts; keys that a record lacks become None."""
        columns = list(dict.fromkeys(key for record in records for key in record))
        return cls(columns, [tuple(record.get(c) for c in columns) for record in records])

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> "Iterator[dict[str, Any]]":
        for row in self.rows:
            yield dict(zip(self.columns, row))

    def index(self, column: str) -> int:
        """Return the position of a column."""
        if column not in self.columns:
            near = difflib.get_close_matches(column, self.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {self.columns}"
            raise TableError(f"no column {column!r}{hint}")
        return self.columns.index(column)

    def values(self, column: str) -> "list[Any]":
        """Return the values of a column, from top to bottom."""
        position = self.index(column)
        return [row[position] for row in self.rows]

    def select(self, *columns: str) -> "Table":
        """Return the table with these columns only, in this order."""
        positions = [self.index(column) for column in columns]
        return Table(list(columns), [tuple(row[p] for p in positions) for row in self.rows])

    def rename(self, names: "dict[str, str]") -> "Table":
        """Return the table with columns renamed, old name -> new name."""
        for name in names:
            self.index(name)
        return Table([names.get(column, column) for column in self.columns], self.rows)

    def where(self, keep: "Callable[[dict[str, Any]], bool]") -> "Table":
        """Return the rows for which `keep` is true."""
        rows = [row for row in self.rows if keep(dict(zip(self.columns, row)))]
        return Table(self.columns, rows)

    def extend(self, column: str, make: "Callable[[dict[str, Any]], Any]") -> "Table":
        """Return the table with one more column, made from each row."""
        if column in self.columns:
            raise TableError(f"there is a column {column!r} already")
        rows = [(*row, make(dict(zip(self.columns, row)))) for row in self.rows]
        return Table([*self.columns, column], rows)

    def sort(self, *keys: str) -> "Table":
        """Return the rows sorted by some columns; `-column` sorts from large to small.

        Rows that are equal keep their order. None comes last, whichever the direction. Numbers come
        before text where a column has both.
        """
        rows = list(self.rows)
        for key in reversed(keys):
            descending = key.startswith("-")
            position = self.index(key[1:] if descending else key)
            rows.sort(key=lambda row: sort_key(row[position]), reverse=descending)
        return Table(self.columns, rows)

    def distinct(self) -> "Table":
        """Return the table with each row once, the first of equals."""
        return Table(self.columns, list(dict.fromkeys(self.rows)))

    def head(self, count: int) -> "Table":
        """Return the first rows."""
        return Table(self.columns, self.rows[:count])

    def group(self, by: "list[str]", aggregates: "dict[str, tuple[str, str]]") -> "Table":
        """Return one row for each combination of values in the columns `by`.

        `aggregates` maps a new column to (function, column), as in `{"total": ("sum", "price")}`.
        None does not count; `count` of a column is the number of values that are not None. Groups
        come in the order in which they first appear.
        """
        for function, _ in aggregates.values():
            if function not in AGGREGATES:
                raise TableError(f"no aggregate {function!r}; one of {', '.join(AGGREGATES)}")
        positions = [self.index(column) for column in by]
        groups: "dict[tuple[Any, ...], list[tuple[Any, ...]]]" = {}
        for row in self.rows:
            groups.setdefault(tuple(row[p] for p in positions), []).append(row)
        rows = []
        for key, members in groups.items():
            made = []
            for function, column in aggregates.values():
                position = self.index(column)
                values = [row[position] for row in members if row[position] is not None]
                made.append(AGGREGATES[function](values))
            rows.append((*key, *made))
        return Table([*by, *aggregates], rows)

    def join(self, other: "Table", on: str, how: str = "inner", suffix: str = "_right") -> "Table":
        """Return the rows of both tables that have the same value in the column `on`.

        `how` is `inner`, or `left`, which keeps rows of this table without a partner and fills up
        with None. None is no value: it never has a partner. Every pair of partners gives a row. A
        column that both tables have gets the suffix where it comes from the other table.
        """
        if how not in ("inner", "left"):
            raise TableError(f"no join {how!r}; one of inner, left")
        left, right = self.index(on), other.index(on)
        partners: "dict[Any, tuple[Any, ...]]" = {}
        for row in other.rows:
            partners[row[right]] = row
        added = [column for column in other.columns if column != on]
        names = [column + suffix if column in self.columns else column for column in added]
        positions = [other.index(column) for column in added]
        rows = []
        for row in self.rows:
            partner = partners.get(row[left])
            if partner is not None:
                rows.append((*row, *(partner[p] for p in positions)))
            elif how == "left":
                rows.append((*row, *(None for _ in positions)))
        return Table([*self.columns, *names], rows)

    def append(self, other: "Table") -> "Table":
        """Return the rows of this table and then of another with the same columns."""
        if set(other.columns) != set(self.columns):
            raise TableError(f"other columns: {', '.join(other.columns)}")
        return Table(self.columns, self.rows + other.select(*self.columns).rows)

    def pivot(self, row: str, column: str, value: str) -> "Table":
        """Return a table with a row for each value of `row`, a column for each of `column`."""
        heads = list(dict.fromkeys(self.values(column)))
        cells: "dict[Any, dict[Any, Any]]" = {}
        for record in self:
            cells.setdefault(record[row], {})[record[column]] = record[value]
        rows = [(key, *(found.get(head) for head in heads)) for key, found in cells.items()]
        return Table([row, *(str(head) for head in heads)], rows)


def sort_key(value: Any) -> "tuple[int, Any]":
    """Return a key by which values of mixed types can be sorted."""
    if value is None:
        return (2, 0)
    if isinstance(value, (bool, int, float)):
        return (0, value)
    return (1, str(value))
