"""What analyze leaves behind: one page without outside parts, tables, figures, and labels."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.figures.distances import refetch_distances
from pipeline.analysis.figures.style import NO_SERIES, arm_styles, save, styled
from pipeline.analysis.output import latex_text
from pipeline.analysis.paired_table import paired_table_text
from pipeline.analysis.publish import AnalysisSummary, analyze_results
from pipeline.analysis.report.run_pages import events_once
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep
from pipeline.analyze import main as analyze
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
    assert not out.exists()
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
