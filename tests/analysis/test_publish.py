"""What analyze leaves behind: one page without outside parts, tables, figures, and labels."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.figures.context import Drop, peak_contexts
from pipeline.analysis.figures.distances import refetch_distances
from pipeline.analysis.figures.money import Effects, cost_against_solve_rate
from pipeline.analysis.figures.style import NO_SERIES, arm_styles, save, styled
from pipeline.analysis.output import latex_text
from pipeline.analysis.paired_table import paired_table_text
from pipeline.analysis.publish import AnalysisSummary, analyze_results
from pipeline.analysis.report.run_pages import events_once
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep
from pipeline.analysis.tables import open_tables
from pipeline.analysis.traces import trace_of
from pipeline.analyze import main as analyze
from pipeline.records.layout import Layout
from pipeline.spec.analysis import AnalysisPlan
from pipeline.synthetic import effects_from
from pipeline.synthetic import main as synthesise

from .conftest import edit_table


@pytest.fixture(scope="module")
def summary(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> AnalysisSummary:
    return analyze_results(pristine, tmp_path_factory.mktemp("report"))


def test_the_report_needs_nothing_but_itself(summary: AnalysisSummary):
    page = summary.report.read_text()
    addresses = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert addresses
    assert all(a.startswith(("data:", "#", "runs/")) for a in addresses)
    assert "<script" not in page


def test_every_caption_says_what_kind_of_evidence_it_shows(summary: AnalysisSummary):
    page = summary.report.read_text()
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(captions) >= 4
    assert all("synthetic data" in caption for caption in captions)
    assert "Every number and figure on this page is from synthetic data" in page


def test_each_figure_is_there_as_svg_and_pdf(summary: AnalysisSummary):
    assert {f.name for f in summary.figures} >= {
        "context_growth",
        "peak_context",
        "stacked_tokens",
        "forest",
    }
    for figure in summary.figures:
        assert figure.svg.read_text().startswith("<?xml")
        assert figure.svg.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_tables_are_the_same_in_csv_and_parquet(summary: AnalysisSummary):
    with (summary.out / "tables/contrasts.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(summary.out / "tables/contrasts.parquet")
    assert table.column_names == list(rows[0])
    assert [r["arm"] for r in rows] == table["arm"].to_pylist()
    assert {r["evidence"] for r in rows} == {"synthetic"}
    assert {r["status"] for r in rows} == {"planned"}


def test_the_tally_in_the_tables_adds_up(summary: AnalysisSummary):
    with (summary.out / "tables/tally.csv").open() as file:
        for row in csv.DictReader(file):
            endings = [v for k, v in row.items() if k == "ok" or k.startswith(("limit", "infra"))]
            others = [row["submitted_empty"], row["agent_error"], row["not run"]]
            assert sum(map(int, [*endings, *others])) == int(row["planned"])


def test_the_latex_table_escapes_names(summary: AnalysisSummary):
    text = (summary.out / "tables/paired_1.tex").read_text()
    assert r"plan\_prune" in text
    assert r"\toprule" in text
    assert latex_text("5% of a_b {x}") == r"5\% of a\_b \{x\}"


def test_the_same_tables_give_the_same_bytes(
    pristine: Path, summary: AnalysisSummary, tmp_path: Path
):
    analyze_results(pristine, tmp_path)
    files = [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) > 20
    for path in files:
        assert (tmp_path / path).read_bytes() == (summary.out / path).read_bytes(), path


def test_the_study_file_says_what_was_analysed(summary: AnalysisSummary):
    study = json.loads((summary.out / "study.json").read_text())
    assert study["valid"] is True
    assert study["plan"]["margin"] == 0.05
    assert study["groups"][0]["reference"] == "full_history"


def test_the_door_refuses_an_invalid_sweep_and_marks_it_when_asked(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    edit_table(sweep, "runs", lambda rows: rows[1:])
    out = tmp_path / "out"
    assert analyze([str(sweep), "--out", str(out)]) == 2
    assert "--allow-invalid" in capsys.readouterr().err
    assert not (out / "report.html").exists()
    assert analyze([str(sweep), "--out", str(out), "--allow-invalid"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("NOT VALID")
    assert "plan_prune" in printed
    assert f"report: {out / 'report.html'}" in printed
    assert "<strong>Not valid.</strong>" in (out / "report.html").read_text()


def test_a_flipped_instance_leads_to_the_pages_of_its_runs(summary: AnalysisSummary):
    page = summary.report.read_text()
    links = re.findall(r'href="(runs/[^"]+)"', page)
    assert links
    for link in links:
        text = (summary.out / link).read_text()
        assert "<h2>Trajectory</h2>" in text
        assert "(synthetic data)" in text
    assert any("read again at step" in (summary.out / link).read_text() for link in links)


@pytest.mark.parametrize("arguments", [["nowhere"], ["."], []])
def test_a_folder_that_is_no_sweep_is_a_clear_error(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if not arguments:
        with pytest.raises(SystemExit):
            analyze(arguments)
        return
    assert analyze([str(tmp_path / arguments[0])]) == 2
    assert capsys.readouterr().err.startswith("analyze: ")


def test_effects_on_the_command_line_are_read_or_refused():
    assert effects_from(["a.tokens=0.7", "a.solve=-0.02"]) == {"a": {"tokens": 0.7, "solve": -0.02}}
    with pytest.raises(ValueError, match=r"write plan_prune\.tokens=0\.7"):
        effects_from(["tokens"])


def test_a_synthetic_sweep_is_written_once_and_holds_its_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--runs", "24", "--out", str(tmp_path / "s"), "--effect", "plan_prune.tokens=0.5"]
    assert synthesise(words) == 0
    truth = json.loads((tmp_path / "s/truth.json").read_text())
    assert truth["effects"]["plan_prune"]["input_token_ratio"] == 0.5
    assert synthesise(words) == 2
    assert "already holds a sweep" in capsys.readouterr().err


def test_what_the_terminal_says_fits_and_the_common_caveat_is_said_once(tmp_path: Path):
    small = SyntheticSweep(n_instances=12, seeds=(0,), mean_steps=12, seed=3)
    write_sweep(small, tmp_path / "small", plan=AnalysisPlan(resamples=200))
    text = paired_table_text(analyze_results(tmp_path / "small", tmp_path / "out").study)
    sentences = text[text.index("\nobservation_mask: ") :]
    assert all(len(line) <= 100 for line in sentences.split("\n"))
    joined = " ".join(sentences.split())
    assert joined.count("neither a difference nor sameness is shown") == 3
    assert joined.count("the interval reaches past the 5-point margin") == 1


def test_a_figure_without_any_series_says_so(tmp_path: Path):
    figure = refetch_distances(
        {"full_history": np.empty(0)},
        {"full_history": 2},
        arm_styles(["full_history"], reference="full_history"),
    )
    assert [text.get_text() for text in figure.axes[0].texts] == [NO_SERIES]
    assert figure.axes[0].get_legend() is None
    assert save(figure, tmp_path / "figure", evidence="sim").exists()


def test_a_plan_set_at_once_is_listed_by_step_only():
    joined = {"step_index": 1, "action": "set", "plan_step": 0, "title": "look | mend"}
    steps = [{**joined, "plan_step": n, "title": t} for n, t in ((1, "look"), (2, "mend"))]
    start = {"step_index": 1, "action": "start", "plan_step": 1, "title": "look"}
    assert events_once([joined, *steps, start]) == [*steps, start]
    assert events_once([joined, start]) == [joined, start], "its only line stays"


@pytest.mark.parametrize("n_arms", [2, 5, 42])
def test_legends_of_many_or_long_names_leave_the_axes_their_room(tmp_path: Path, n_arms: int):
    arms = [f"delete_outputs_delayed_by_turns_{i}" for i in range(n_arms)]
    with styled():
        figure = refetch_distances(
            {arm: np.arange(1.0, 6.0) for arm in arms},
            dict.fromkeys(arms, 2),
            arm_styles(arms, reference=arms[0]),
        )
        save(figure, tmp_path / "figure", evidence="sim")  # a warning here is an error
    assert figure.axes[0].get_window_extent().height > 1.0 * figure.dpi


def test_a_drop_is_given_as_outputs_and_their_tokens(pristine: Path):
    path = sorted(Layout(pristine).table("messages").glob("*.parquet"))[0]
    rows = [r for r in pq.read_table(path).to_pylist() if r["pruned_at_call"] is not None]
    run_id = rows[0]["run_id"]
    with open_tables(pristine) as connection:
        trace = trace_of(connection, run_id, arm="plan_prune")
    dropped: dict[int, list[int]] = {}
    for row in rows:
        if row["run_id"] == run_id:
            dropped.setdefault(row["pruned_at_call"], []).append(row["n_tokens"])
    expected = [(len(t), sum(t)) for _, t in sorted(dropped.items())]
    assert [(d.n_outputs, d.n_tokens) for d in trace.drops] == expected
    assert Drop(call=3, n_outputs=12, n_tokens=4900.0).label == "-12, 4.9k"
    assert Drop(call=3, n_outputs=12, n_tokens=float("nan")).label == "-12"


def test_peaks_are_marked_by_outcome():
    peaks = {"full_history": np.array([10.0, 20.0, 30.0]), "mask": np.array([9.0, 15.0, 12.0])}
    solved = {"full_history": np.array([1.0, 0.0, 0.5]), "mask": np.array([1.0, 1.0, 0.0])}
    styles = arm_styles(list(peaks), reference="full_history")
    (axes,) = peak_contexts(peaks, solved, styles, reference="full_history").axes
    found = {
        (line.get_fillstyle(), float(y))
        for line in axes.lines
        if line.get_linestyle() == "None"
        for y in line.get_ydata()
    }
    assert found == {
        ("full", 10.0), ("none", 20.0), ("left", 30.0),
        ("full", 9.0), ("full", 15.0), ("none", 12.0),
    }  # fmt: skip


def test_cost_and_solve_rate_are_drawn_with_the_intervals_of_the_comparison():
    effects = Effects(cost=(0.8, 0.7, 0.9), solve_points=(-2.0, -5.0, 1.0))
    styles = arm_styles(["full_history", "mask"], reference="full_history")
    panels = {"flat": {"mask": effects}, "caching": {"mask": effects}}
    figure = cost_against_solve_rate(panels, styles, reference="full_history")
    assert len(figure.axes) == 2
    for axes in figure.axes:
        drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        assert ([0.7, 0.9], [-2.0, -2.0]) in drawn
        assert ([0.8, 0.8], [-5.0, 1.0]) in drawn
