"""Ask the workers of a sweep to finish the runs in flight, publish and stop.

Launching the sweep again withdraws the request and goes on. With --arm one arm is ended and the
others go on: for an arm about which a planned look has decided (pipeline.status RESULTS --decide).
A later launch does not take it up again, and the report is refused where no look said so.
"""

import argparse
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.host.files import create_exclusive
from pipeline.planning.progress import live_workers
from pipeline.plural import plural
from pipeline.records.ended_arms import ended_arm_note, ended_arms
from pipeline.records.layout import Layout, file_name
from pipeline.records.lock import LockError, read_lock
from pipeline.spec.sweep import SweepSpec


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.drain", description=__doc__)
    parser.add_argument("results", type=Path, help="the results folder")
    parser.add_argument("--arm", metavar="NAME", help="end this arm alone")
    options = parser.parse_args(arguments)
    layout = Layout(options.results)
    try:
        lock = read_lock(layout.lock)
        if options.arm is not None:
            _refuse_needed(lock.spec, options.arm, ended_arms(layout))
    except (LockError, ValueError) as error:
        print(f"drain: {error}", file=sys.stderr)
        return 2
    if options.arm is not None:
        layout.ended_arms.mkdir(exist_ok=True)
        note = ended_arm_note(options.arm, at=datetime.now(UTC).isoformat(timespec="seconds"))
        is_new = create_exclusive(layout.ended_arms / f"{file_name(options.arm)}.json", note)
        was = "" if is_new else " already"
        print(f"{options.arm} is{was} ended: claimed blocks finish, and no more runs are begun")
        reference, ended = lock.spec.analysis.reference, ended_arms(layout)
        if set(lock.spec.arms) - set(ended) == {reference}:
            print(
                f"nothing is left to compare with {reference}; end it too: "
                f"python -m pipeline.drain {layout.root} --arm {reference}"
            )
        return 0
    create_exclusive(layout.drain_request, b"")
    workers = live_workers(layout)
    in_flight = sum(len(worker.get("in_flight") or ()) for worker in workers)
    print(
        f"asked {plural(len(workers), 'live worker')} to stop; {plural(in_flight, 'run')} in "
        "flight "
        "will be finished; "
        f"watch with: python -m pipeline.status {layout.root} --watch"
    )
    return 0


def _refuse_needed(spec: SweepSpec, arm: str, ended: Collection[str]) -> None:
    """Raise `ValueError` for an arm that is not there, or that arms which go on depend on."""
    if arm not in spec.arms:
        raise ValueError(f"no arm {arm!r} in this sweep; it has {', '.join(spec.arms)}")
    others = [name for name in spec.arms if name != arm and name not in ended]
    is_reference = arm == spec.analysis.reference
    needed_by = [
        name
        for name in others
        if is_reference or arm in (spec.arms[name].matched_to, spec.fork_source(name))
    ]
    if needed_by:
        are, those = ("are", "those") if len(needed_by) > 1 else ("is", "that")
        raise ValueError(
            f"{', '.join(needed_by)} {are} compared with, matched to or forked from {arm}; "
            f"end {those} first"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
