"""The command line: `python3 -m confkit.cli COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from confkit.layers import Layers
from confkit.parser import dumps, format_value


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="confkit", description="configuration in layers")
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="the merged configuration")
    show.add_argument("--raw", action="store_true", help="leave ${...} as it is")
    get = commands.add_parser("get", help="one value")
    get.add_argument("key")
    explain = commands.add_parser("explain", help="which layer a value came from")
    explain.add_argument("key")
    for command in (show, get, explain):
        command.add_argument("files", nargs="*", type=Path)
        command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser


def layers_of(files: "list[Path]", assignments: "list[str]") -> Layers:
    """Return layers from files, the last on top, and assignments above them."""
    layers = Layers()
    for file in files:
        layers.add_text(str(file), file.read_text(encoding="utf-8"))
    if assignments:
        layers.add_overrides(assignments)
    return layers


def run(options: argparse.Namespace) -> str:
    """Return what the chosen command prints."""
    layers = layers_of(options.files, options.set)
    if options.command == "show":
        return dumps(layers.merged() if options.raw else layers.resolved())
    if options.command == "explain":
        return layers.explain(options.key)
    return format_value(layers.get(options.key))


def main(arguments: "list[str] | None" = None) -> int:
    """Run the command line; return the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        print(run(options))
    except (ValueError, OSError) as error:
        print(f"confkit: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
