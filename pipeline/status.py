"""Show how far a sweep is: progress per cell, rates, time left, failures by class, the queue.

Solve rates by arm are not shown: nobody looks before the sweep is complete (use pipeline.analyze).
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pipeline.host.slurm import JobState, job_states
from pipeline.planning.display import counted, status_view
from pipeline.planning.progress import Progress, progress_of
from pipeline.planning.submit import submissions
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError, read_lock
from pipeline.records.plan import read_plan
from pipeline.records.states import States


def main(arguments: Sequence[str]) -> int:
    """Run the door; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.status", description=__doc__)
    parser.add_argument("results", type=Path, help="the results folder")
    parser.add_argument("--watch", action="store_true", help="keep showing until it is complete")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds (default 5)")
    options = parser.parse_args(arguments)
    layout = Layout(options.results)
    try:
        read_lock(layout.lock)
        return _show(layout, options)
    except LockError as error:
        print(f"status: {error}", file=sys.stderr)
        return 2


def _show(layout: Layout, options: argparse.Namespace) -> int:
    runs, states = read_plan(layout.plan), States(layout)
    if options.json:
        progress = progress_of(layout, runs, states)
        print(json.dumps({**asdict(progress), "queue": queue(layout)}, indent=2))
        return 0
    console = Console(highlight=False)
    if not options.watch:
        console.print(_page(layout, progress_of(layout, runs, states)))
        return 0
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                progress = progress_of(layout, runs, states)
                live.update(_page(layout, progress), refresh=True)
                if progress.all_run and progress.all_graded:
                    return 0
                time.sleep(options.every)
    except KeyboardInterrupt:
        return 130


def queue(layout: Layout) -> dict[str, int]:
    """Return how many Slurm jobs of this folder are in which state."""
    job_ids = [
        job["job_id"]
        for record in submissions(layout)
        if record["kind"] == "slurm"
        for job in record["jobs"]
    ]
    states = job_states(job_ids)
    return {state.value: n for state in JobState if (n := sum(s is state for s in states.values()))}


def _page(layout: Layout, progress: Progress) -> RenderableType:
    jobs = queue(layout)
    if not jobs:
        return status_view(progress)
    return Group(status_view(progress), Text("queue: " + counted(jobs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
