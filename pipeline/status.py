"""Show how far a sweep is: progress per cell, rates, time left, failures by class, the queue.

Says what keeps a sweep from getting on, with the line that helps. Solve rates by arm are not shown:
nobody looks before the sweep is complete (use pipeline.analyze), or at a look that was planned
(--decide, analysis.looks): then each arm's decision is.

With --watch the exit status is 0 once all is done, and 1 when nothing is left to wait for before.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from pipeline.compact import compact_folder
from pipeline.planning.display import one_line, situation_view
from pipeline.planning.situation import Situation, situation_of
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, LockError, read_lock
from pipeline.records.plan import read_plan
from pipeline.records.states import States


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.status", description=__doc__)
    parser.add_argument("results", type=Path, help="the results folder")
    parser.add_argument("--watch", action="store_true", help="keep updating until the sweep ends")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--decide", action="store_true", help="print the decisions of planned looks that are due"
    )
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds (default 5)")
    options = parser.parse_args(arguments)
    layout = Layout(options.results)
    try:
        lock = read_lock(layout.lock)
        return _decide(layout, lock) if options.decide else _show(layout, lock, options)
    except (LockError, ClaimError, DiskError) as error:
        print(f"status: {error}", file=sys.stderr)
        return 2


def _show(layout: Layout, lock: Lock, options: argparse.Namespace) -> int:
    runs, states = read_plan(layout.plan), States(layout)
    if options.json:
        now = situation_of(layout, lock, runs, states)
        print(json.dumps(_plain(now), indent=2))
        return 0
    console = Console(highlight=False)
    if not options.watch:
        console.print(situation_view(situation_of(layout, lock, runs, states)))
        return 0
    last_counts = None
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                now = situation_of(layout, lock, runs, states)
                live.update(situation_view(now), refresh=True)
                counts = (now.progress.finished, now.progress.graded)
                if not console.is_terminal and counts != last_counts:
                    # In a pipe or a file, rich prints the last view alone.
                    last_counts = counts
                    print(one_line(now.progress), flush=True)
                if now.is_complete:
                    return 0
                if not now.is_under_way:
                    return 1
                time.sleep(options.every)
    except KeyboardInterrupt:
        return 130


def _decide(layout: Layout, lock: Lock) -> int:
    """Print the decision about every planned arm, and no solve rate of an arm that goes on."""
    # SciPy and DuckDB take a second to import, which a status need not pay.
    from pipeline.analysis.decisions import decisions
    from pipeline.analysis.outcomes import groups_of
    from pipeline.analysis.tables import open_tables

    plan = lock.spec.analysis
    try:
        if layout.journal_paths():
            compact_folder(layout.root)
        with open_tables(layout.root) as connection:
            decided = {
                group.title: decisions(group, plan)
                for group in groups_of(connection, exclusions=plan.exclusions)
            }
    except ValueError as error:
        print(f"status: {error}", file=sys.stderr)
        return 2
    for title, found in decided.items():
        print("\n  ".join([title, *(decision.sentence for decision in found)]))
    return 0


def _plain(now: Situation) -> dict[str, Any]:
    """Return the situation as one JSON object; what is of the sweep itself is at its top."""
    rest = {key: value for key, value in asdict(now).items() if key != "progress"}
    return {**asdict(now.progress), **rest}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
