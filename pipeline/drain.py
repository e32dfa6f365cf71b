"""Ask the workers of a sweep to finish the runs in flight, publish and stop.

Launching the sweep again withdraws the request and goes on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.host.files import create_exclusive
from pipeline.planning.progress import live_workers
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError, read_lock


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.drain", description=__doc__)
    parser.add_argument("results", type=Path, help="the results folder")
    options = parser.parse_args(arguments)
    layout = Layout(options.results)
    try:
        read_lock(layout.lock)
    except LockError as error:
        print(f"drain: {error}", file=sys.stderr)
        return 2
    create_exclusive(layout.drain_request, b"")
    workers = live_workers(layout)
    in_flight = sum(len(worker.get("in_flight") or ()) for worker in workers)
    print(
        f"asked {len(workers)} live workers to stop after the {in_flight} runs in flight; "
        f"watch with: python -m pipeline.status {layout.root} --watch"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
