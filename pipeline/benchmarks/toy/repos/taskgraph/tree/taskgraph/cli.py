"""The command line: `python3 -m taskgraph.cli COMMAND FILE`."""

from __future__ import annotations

import argparse
import sys

from taskgraph.scheduler import Backoff, Scheduler, summary, timetable
from taskgraph.spec import SpecError, load


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="taskgraph", description="tasks that need each other")
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order", help="an order in which the tasks can run")
    levels = commands.add_parser("levels", help="the tasks in waves")
    simulate = commands.add_parser("simulate", help="a timetable")
    simulate.add_argument("--workers", type=int, default=2)
    simulate.add_argument("--fail", action="append", default=[], metavar="TASK[:TIMES]")
    simulate.add_argument("--backoff", type=float, default=0.0)
    for command in (order, levels, simulate):
        command.add_argument("file")
    return parser


def failures_of(arguments: "list[str]") -> "dict[str, float]":
    """Return how often each task fails, from texts like `compile:2`; for ever without a number."""
    result = {}
    for argument in arguments:
        name, _, times = argument.partition(":")
        result[name] = float(times) if times else float("inf")
    return result


def run(options: argparse.Namespace) -> str:
    """Return what the chosen command prints."""
    graph = load(options.file)
    if options.command == "order":
        return "\n".join(graph.order())
    if options.command == "levels":
        return "\n".join(" ".join(wave) for wave in graph.levels())
    fails = failures_of(options.fail)
    scheduler = Scheduler(
        graph,
        lambda task, attempt: attempt > fails.get(task.name, 0),
        workers=options.workers,
        backoff=Backoff(first=options.backoff),
    )
    outcomes = scheduler.run()
    counts = ", ".join(f"{count} {state}" for state, count in summary(outcomes).items() if count)
    return f"{timetable(outcomes)}\n{counts} in {scheduler.now:.1f} s"


def main(arguments: "list[str] | None" = None) -> int:
    """Run the command line; return the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        print(run(options))
    except (SpecError, ValueError, OSError) as error:
        print(f"taskgraph: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
