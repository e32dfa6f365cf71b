"""Writes what a study found: tables, figures, and the report. The one entry point for commands.

Everything lands in one folder (`RESULTS/report` unless another is named):

    report.html   self-contained, opens anywhere
    runs/         a page for each run of instances that flipped
    figures/      SVG and PDF
    tables/       CSV, Parquet, LaTeX
    study.json    what was analysed, with which plan and which gate findings
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.analysis.figures.drawn import Drawn, draw_all
from pipeline.analysis.gate import InvalidSweepError
from pipeline.analysis.gate_runs import TABLE as GATE_RUNS
from pipeline.analysis.output import replace_file, write_arrow, write_latex, write_table
from pipeline.analysis.paired_table import HEADER, paired_rows, paired_table_text
from pipeline.analysis.report.page import report_page
from pipeline.analysis.report.run_pages import write_run_pages
from pipeline.analysis.result_tables import ALL_TABLES, gate_run_rows
from pipeline.analysis.study import Study, opened_study
from pipeline.analysis.wording import evidence_note
from pipeline.records.layout import Layout

__all__ = ["AnalysisSummary", "analyze_results", "paired_table_text"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisSummary:
    """What was found and where it was written."""

    study: Study
    out: Path
    report: Path
    figures: tuple[Drawn, ...]


def analyze_results(
    results: Path,
    out: Path | None = None,
    *,
    reference: str | None = None,
    allow_invalid: bool = False,
) -> AnalysisSummary:
    """Analyse a results folder and write tables, figures and the report.

    Args:
        results: the results folder, compacted.
        out: where to write; `RESULTS/report` if None.
        reference: arm to compare with instead of the plan's; everything is exploratory then.
        allow_invalid: analyse a sweep that fails its gate; the report is marked.

    Raises:
        FileNotFoundError: no such folder.
        InvalidSweepError: the gate refused the sweep; the message says why and what to do, and
            which table has the runs that it counts.
        ValueError: the reference is not among the arms.
    """
    if not results.is_dir():
        raise FileNotFoundError(f"no results folder {results}")
    out = out or Layout(results).report
    try:
        connection, study = opened_study(results, reference=reference, allow_invalid=allow_invalid)
    except InvalidSweepError as refused:
        if rows := gate_run_rows(refused.gate):
            write_table(rows, stem := out / "tables" / GATE_RUNS)
            raise InvalidSweepError(refused.gate, runs_table=f"{stem}.csv") from None
        raise
    with connection:
        figures = draw_all(study, connection, out / "figures")
        pages = write_run_pages(study, connection, out)
        _write_tables(study, out / "tables")
    replace_file(out / "study.json", _study_json(study).encode())
    report = out / "report.html"
    replace_file(report, report_page(study, figures, pages).encode())
    return AnalysisSummary(study=study, out=out, report=report, figures=tuple(figures))


def _write_tables(study: Study, folder: Path) -> None:
    for name, rows in ALL_TABLES.items():
        write_table(rows(study), folder / name)
    write_arrow(study.behaviour.refetches, folder / "refetches.parquet")
    for number, group in enumerate(study.groups):
        write_latex(
            HEADER,
            _latex_cells(paired_rows(group)),
            folder / f"paired_{number + 1}.tex",
            caption=f"{group.group.title}: every arm against {group.reference}, with 95% intervals"
            f" over instances{evidence_note(group.group.evidence)}{study.cache_note}.",
            label=f"paired-{number + 1}",
        )


def _latex_cells(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[cell.replace(" [", "\N{NO-BREAK SPACE}[") for cell in row] for row in rows]


def _study_json(study: Study) -> str:
    """Return what was analysed, for machines."""
    return json.dumps(
        {
            "evidence": study.evidence,
            "valid": study.gate.passes,
            "plan": asdict(study.plan),
            "analysis_sha256": study.lock.analysis_sha256 if study.lock else None,
            "problems": [asdict(problem) for problem in study.gate.problems],
            "groups": [
                {
                    "title": group.group.title,
                    "reference": group.reference,
                    "instances": len(group.group.instance_ids),
                    "excluded": group.group.excluded,
                    "arms": list(group.group.arms),
                }
                for group in study.groups
            ],
        },
        indent=1,
    )
