"""Write a results folder's records in the forms that others read.

traj: mini-SWE-agent trajectories, which its inspector opens and `ingest` reads back without loss.
atif: ATIF trajectories for other viewers, which `ingest` reads back without loss too.
preds: SWE-bench predictions, one file a cell (agent, model, arm, seed).
reports: the files of the official harness: report.json, patch.diff and test_output.txt of every
    graded run, and a summary MODEL.RUN.json a cell.
hf: a dataset folder with a card.
package: everything needed to recompute every number of the report, with checksums.

`--no-text` leaves out of traj and atif whatever anybody wrote; such files are not for `ingest`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.compact import NoSweepError, compact_folder
from pipeline.host.files import replace_bytes
from pipeline.plural import plural
from pipeline.records.atif_export import atif_from_record
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.foreign.files import SUFFIX
from pipeline.records.journal import disk_errors
from pipeline.records.layout import Layout, file_name
from pipeline.records.lock import LockError
from pipeline.records.mini_export import mini_from_record
from pipeline.records.official_reports import write_reports
from pipeline.records.package import write_dataset, write_package
from pipeline.records.predictions import cell_name, write_predictions
from pipeline.records.rebuild import all_run_tables, record_from, tool_lists
from pipeline.records.run_record import RunRecord
from pipeline.records.wordless import without_texts

Form = Callable[[RunRecord], dict[str, Any]]

RUN_FORMS: dict[str, tuple[str, Form, str]] = {
    "traj": (SUFFIX, mini_from_record, "; view them with: mini-extra inspector {out}"),
    "atif": (".json", atif_from_record, ", in ATIF format"),
}
"""Formats with a file a run: how names end, what is in it, what to say in the end."""


def _export_runs(layout: Layout, out: Path, name: str, *, no_text: bool) -> str:
    suffix, form, said = RUN_FORMS[name]
    if no_text:
        whole = form

        def form(record: RunRecord) -> dict[str, Any]:
            return whole(without_texts(record))

    n_files = _write_runs(layout, out, suffix, form)
    return f"{n_files} trajectories in {out}" + said.format(out=out)


def _write_runs(layout: Layout, out: Path, suffix: str, form: Form) -> int:
    """Write one file a run, in a folder a cell; return how many."""
    tools, n_files = tool_lists(layout), 0
    for tables in all_run_tables(layout):
        record = record_from(tables, tools)
        path = out / file_name(cell_name(tables.run)) / f"{file_name(record.run_id)}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(form(record), ensure_ascii=False)
        # Bytes of a patch that are no UTF-8 become JSON's escapes.
        replace_bytes(path, text.encode(errors="backslashreplace"))
        n_files += 1
    return n_files


def _preds(layout: Layout, out: Path) -> str:
    paths = write_predictions(layout, out)
    if not paths:
        raise ValueError(
            f"there is nothing to export: every run in {layout.root} ended in an infrastructure "
            "failure; launch the sweep again to rerun them"
        )
    return (
        f"{plural(len(paths), 'cell')} in {out}; each is a predictions file of the SWE-bench "
        "harness"
    )


def _reports(layout: Layout, out: Path) -> str:
    from pipeline.grading.harness import classified

    paths = write_reports(layout, out, classified)
    if not paths:
        raise ValueError(
            f"there is nothing to export: every run in {layout.root} failed on our side"
        )
    return (
        f"{plural(len(paths), 'cell')} in {out}; each has a summary there and its instances "
        f"in {out / 'logs'}"
    )


def _hf(layout: Layout, out: Path) -> str:
    write_dataset(layout, out)
    return f"dataset folder {out}; its card is {out / 'README.md'}"


def _package(layout: Layout, out: Path) -> str:
    write_package(layout, out)
    return f"package {out}; recompute everything with: sh {out / 'reproduce.sh'}"


FORMATS: dict[str, Callable[[Layout, Path], str]] = {
    "preds": _preds,
    "reports": _reports,
    "hf": _hf,
    "package": _package,
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, help="the results folder")
    parser.add_argument("--format", choices=[*RUN_FORMS, *FORMATS], required=True)
    parser.add_argument("--out", type=Path, help="default: RESULTS/export/FORMAT")
    parser.add_argument(
        "--no-text", action="store_true", help="sizes, times and tools only (traj and atif)"
    )
    options = parser.parse_args(arguments)
    if not options.results.is_dir():
        print(f"export: there is no folder {options.results}", file=sys.stderr)
        return 2
    if options.no_text and options.format not in RUN_FORMS:
        print(f"export: --no-text is for {' and '.join(RUN_FORMS)}", file=sys.stderr)
        return 2
    layout = Layout(options.results)
    out = options.out or layout.exports / options.format
    try:
        if not compact_folder(layout.root).n_runs:
            print(f"export: {layout.root} has no finished run yet", file=sys.stderr)
            return 2
        with disk_errors(f"writing {out}"):
            if options.format in RUN_FORMS:
                print(_export_runs(layout, out, options.format, no_text=options.no_text))
            else:
                print(FORMATS[options.format](layout, out))
    except (DiskError, ClaimError, FileExistsError, LockError, ValueError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 2 if isinstance(error, NoSweepError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
