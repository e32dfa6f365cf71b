"""Door: tables, statistics, figures and the report of a results folder.

    python -m pipeline.analyze RESULTS [--out DIR] [--reference ARM] [--allow-invalid]
    python -m pipeline.analyze --outcomes FILE [--reference ARM]

Brings the tables up to date with the journals first. Refuses a sweep that is not valid (missing
runs, half graded, mixed configurations, ...) and says what to do; `--allow-invalid` analyses it all
the same and marks everything. `--outcomes` compares the arms of a CSV or Parquet file with one row
a run: task, arm, solved or score, and where known seed, model, cost and tokens.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.compact import compact_folder
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.layout import Layout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.analyze",
        description="Analyse a results folder: tables, figures and one HTML report.",
    )
    parser.add_argument("results", type=Path, nargs="?", metavar="RESULTS")
    parser.add_argument(
        "--outcomes", type=Path, metavar="FILE", help="compare the arms of a table of outcomes"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: RESULTS/report")
    parser.add_argument(
        "--reference", metavar="ARM", help="compare with this arm instead of the plan's"
    )
    parser.add_argument(
        "--allow-invalid",
        action="store_true",
        help="analyze a sweep that fails the validity gate; the report is marked",
    )
    args = parser.parse_args(arguments)
    if (args.results is None) == (args.outcomes is None):
        parser.error("give a results folder or --outcomes FILE, not both")
    console = Console(highlight=False, soft_wrap=True)
    if args.outcomes is not None:
        return analyze_outcomes(args.outcomes, console, reference=args.reference)
    try:
        if Layout(args.results).journal_paths():
            compact_folder(args.results)
    except (DiskError, ClaimError, ValueError) as error:
        print(f"analyze: {error}", file=sys.stderr)
        return 2
    return analyze_folder(
        args.results,
        console,
        out=args.out,
        reference=args.reference,
        allow_invalid=args.allow_invalid,
    )


def analyze_outcomes(path: Path, console: Console, *, reference: str | None = None) -> int:
    """Print the paired table of a file of outcomes, model by model; return the exit status."""
    from pipeline.analysis.outcome_contrasts import outcome_contrasts, outcome_lines
    from pipeline.analysis.outcome_file import outcome_tables
    from pipeline.spec.analysis import AnalysisPlan

    plan = AnalysisPlan()
    try:
        for table in outcome_tables(path):
            first = plan.reference if plan.reference in table.arms else next(iter(table.arms))
            against = reference or first
            found = outcome_contrasts(table, reference=against, plan=plan)
            for line in outcome_lines(table, against, found):
                console.print(line, markup=False)
            console.print()
    except (OSError, ValueError) as error:
        print(f"analyze: {error}", file=sys.stderr)
        return 2
    return 0


def analyze_folder(
    results: Path,
    console: Console,
    *,
    out: Path | None = None,
    reference: str | None = None,
    allow_invalid: bool = False,
) -> int:
    """Analyse `results`, already compacted; print the paired table; return the exit status."""
    # SciPy, DuckDB and matplotlib take a second to import, which `launch --help` need not pay.
    from pipeline.analysis.gate import InvalidSweepError
    from pipeline.analysis.publish import analyze_results, paired_table_text
    from pipeline.records.lock import LockError

    try:
        summary = analyze_results(results, out, reference=reference, allow_invalid=allow_invalid)
    except (InvalidSweepError, LockError, FileNotFoundError, ValueError) as error:
        print(f"analyze: {error}", file=sys.stderr)
        return 2
    console.print(paired_table_text(summary.study), markup=False)
    console.print(f"\nreport: {summary.report}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
