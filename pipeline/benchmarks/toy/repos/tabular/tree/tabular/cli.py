"""The command line: `python3 -m tabular.cli FILE ...`."""

from __future__ import annotations

import argparse
import operator
import re
import sys
from pathlib import Path
from typing import Any, Callable

from tabular.reader import read, value_of, write
from tabular.render import Style, markdown, text
from tabular.table import Table

CONDITION = re.compile(r"^(?P<column>[^<>=!]+)(?P<sign><=|>=|!=|=|<|>)(?P<value>.*)$")
SIGNS: "dict[str, Callable[[Any, Any], bool]]" = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="tabular", description="small tables")
    parser.add_argument("file", type=Path)
    parser.add_argument("--where", action="append", default=[], metavar="COLUMN>=VALUE")
    parser.add_argument("--sort", action="append", default=[], metavar="[-]COLUMN")
    parser.add_argument("--columns", help="comma separated")
    parser.add_argument("--group", help="comma separated")
    parser.add_argument("--sum", metavar="COLUMN")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--width", type=int, help="cut columns to this width")
    return parser


def condition(text_form: str) -> "Callable[[dict[str, Any]], bool]":
    """Return the test written as `column>=value`; None and other types never satisfy an order."""
    match = CONDITION.match(text_form)
    if match is None:
        raise ValueError(f"not a condition: {text_form!r}")
    column, sign, wanted = match["column"].strip(), match["sign"], value_of(match["value"].strip())

    def test(row: "dict[str, Any]") -> bool:
        if column not in row:
            raise ValueError(f"no column {column!r}")
        try:
            return SIGNS[sign](row[column], wanted)
        except TypeError:
            return False

    return test


def transform(table: Table, options: argparse.Namespace) -> Table:
    """Return the table after filtering, grouping, sorting and selecting."""
    for text_form in options.where:
        table = table.where(condition(text_form))
    if options.group:
        aggregate = ("sum", options.sum) if options.sum else ("count", options.group.split(",")[0])
        table = table.group(options.group.split(","), {aggregate[0]: aggregate})
    if options.sort:
        table = table.sort(*options.sort)
    return table.select(*options.columns.split(",")) if options.columns else table


def main(arguments: "list[str] | None" = None) -> int:
    """Run the command line; return the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        table = transform(read(options.file.read_text(encoding="utf-8")), options)
    except (ValueError, OSError) as error:
        print(f"tabular: {error}", file=sys.stderr)
        return 1
    style = Style(max_width=options.width)
    if options.csv:
        print(write(table), end="")
    else:
        print(markdown(table, style) if options.markdown else text(table, style))
    return 0


if __name__ == "__main__":
    sys.exit(main())
