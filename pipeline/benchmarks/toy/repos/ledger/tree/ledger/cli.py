"""The command line: `python3 -m ledger.cli COMMAND FILE ...`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ledger.journal import JournalError, parse
from ledger.money import Money
from ledger.reports import balances, render_balances, render_statement, share, statement


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="ledger", description="plain text bookkeeping")
    commands = parser.add_subparsers(dest="command", required=True)

    balance = commands.add_parser("balance", help="the balance of every account")
    balance.add_argument("file", type=Path)

    month = commands.add_parser("statement", help="a month of one account")
    month.add_argument("file", type=Path)
    month.add_argument("account")
    month.add_argument("month", help="YYYY-MM")
    month.add_argument("--currency", default="EUR")

    split = commands.add_parser("share", help="share a cost: share '90.00 EUR' ann=2 bob=1")
    split.add_argument("cost")
    split.add_argument("weights", nargs="+", metavar="NAME=WEIGHT")
    return parser


def weights_of(arguments: "list[str]") -> "dict[str, int]":
    """Return name -> weight from arguments like `ann=2`; the weight is 1 where it is left out."""
    weights = {}
    for argument in arguments:
        name, _, weight = argument.partition("=")
        if not name:
            raise ValueError(f"not NAME=WEIGHT: {argument!r}")
        weights[name] = int(weight) if weight else 1
    return weights


def run(options: argparse.Namespace) -> str:
    """Return what the chosen command prints."""
    if options.command == "share":
        parts = share(Money.parse(options.cost), weights_of(options.weights))
        return "\n".join(f"{name:<12} {amount!s:>14}" for name, amount in parts.items())
    journal = parse(options.file.read_text(encoding="utf-8"))
    if options.command == "balance":
        return render_balances(balances(journal))
    year, month = (int(part) for part in options.month.split("-"))
    return render_statement(statement(journal, options.account, year, month, options.currency))


def main(arguments: "list[str] | None" = None) -> int:
    """Run the command line; return the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        print(run(options))
    except (JournalError, ValueError, OSError) as error:
        print(f"ledger: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
