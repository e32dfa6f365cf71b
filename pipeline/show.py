"""Show one run: its plan, calls, edits, ending and last output, and where its logs are.

    python -m pipeline.show RESULTS RUN_ID             the run on one page
    python -m pipeline.show RESULTS RUN_ID --call N    exactly what its call N sent
    python -m pipeline.show RESULTS RUN_ID --html      the run as an HTML page

`status` names the runs that failed. The beginning of an id is enough where only one begins so.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.compact import compact_folder
from pipeline.planning.run_page import (
    NoRunError,
    ShownRun,
    call_messages,
    call_text,
    run_data,
    run_text,
    shown_run,
)
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.layout import Layout, file_name
from pipeline.records.lock import LockError


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.show",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, help="the results folder")
    parser.add_argument("run_id", metavar="RUN_ID", help="the run id, or its first characters")
    parser.add_argument(
        "--call", type=int, metavar="N", help="print the prompt of call N, counted from 0"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="write a page (default: RESULTS/report/runs/RUN_ID.html)",
    )
    options = parser.parse_args(arguments)
    layout = Layout(options.results)
    try:
        shown = shown_run(layout, options.run_id)
        wants_page = options.html is not None
        print(_html(layout, shown, options.html) if wants_page else _text(shown, options))
    except (NoRunError, LockError, ClaimError, DiskError, KeyError, OSError) as error:
        print(f"show: {error}", file=sys.stderr)
        return 2
    return 0


def _text(shown: ShownRun, options: argparse.Namespace) -> str:
    if options.call is None:
        return json.dumps(run_data(shown), default=str) if options.json else run_text(shown)
    if options.json:
        return json.dumps(call_messages(shown.record, options.call))
    return call_text(shown.record, options.call)


def _html(layout: Layout, shown: ShownRun, file: Path) -> str:
    from pipeline.analysis.report.run_pages import write_run_page

    run_id = shown.record.run_id
    out = layout.report / "runs" / f"{file_name(run_id)}.html" if file == Path() else file
    if layout.journal_paths():
        compact_folder(layout.root)
    write_run_page(layout.root, run_id, out)
    return str(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
