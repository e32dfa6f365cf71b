"""Turn a results folder's journals into Parquet tables.

Only journals that have grown since the last time are read. Safe to run while workers write, and
from several terminals at once.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.plural import plural
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.layout import Layout
from pipeline.records.tables import CompactionReport, compact


class NoSweepError(ValueError):
    """The folder holds no sweep; nothing was written into it."""


def compact_folder(results: Path) -> CompactionReport:
    """Compact the folder, print what came of it, and return it.

    Raises:
        NoSweepError: the folder holds no sweep.
        ClaimError, DiskError, ValueError: see `compact`.
    """
    layout = Layout(results)
    if not (layout.lock.exists() or layout.tables.is_dir() or layout.journal_paths()):
        raise NoSweepError(
            f"{results} is not a results folder: it has neither {layout.lock.name} nor journals; "
            "nothing was written"
        )
    report = compact(layout)
    print(
        f"tables: {plural(report.n_runs, 'run')}, {plural(report.n_grades, 'grade')}, "
        f"{plural(report.n_superseded, 'superseded record')} in {layout.tables} "
        f"({plural(report.journals_read, 'journal')} read, "
        f"{report.journals_unchanged} unchanged)"
    )
    for name, damages in report.damages.items():
        for damage in damages:
            print(
                f"warning: {layout.journal(name)} is corrupt at byte {damage.offset} "
                f"({damage.n_bytes} bytes): those records are lost, and their runs run again at "
                "the next launch; all other records were kept",
                file=sys.stderr,
            )
    return report


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.compact", description=__doc__)
    parser.add_argument("results", type=Path, help="the results folder")
    options = parser.parse_args(arguments)
    if not options.results.is_dir():
        print(f"compact: there is no folder {options.results}", file=sys.stderr)
        return 2
    try:
        compact_folder(options.results)
    except (DiskError, ClaimError, ValueError) as error:
        print(f"compact: {error}", file=sys.stderr)
        return 2 if isinstance(error, NoSweepError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
