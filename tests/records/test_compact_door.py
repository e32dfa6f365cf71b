from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pipeline import analyze, compact, export, ingest
from pipeline.records import tables
from pipeline.records.exclusive import exclusive_claim
from pipeline.records.journal import Journal, scan
from pipeline.records.layout import Layout
from tests.records.samples import full_run


def test_compact_says_what_is_in_the_tables_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(full_run())
    assert compact.main([str(tmp_path)]) == 0
    assert "1 run, 0 grades" in capsys.readouterr().out


def test_compact_names_the_journal_and_the_byte_of_a_corrupt_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(full_run("r0"))
        journal.append_run(full_run("r1"))
    data = bytearray(journal.path.read_bytes())
    data[scan(journal.path).frames[0].end - 1] ^= 1
    journal.path.write_bytes(bytes(data))
    assert compact.main([str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "w0.journal is corrupt at byte 0" in shown.err
    assert "1 run," in shown.out


def test_compact_refuses_a_folder_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compact.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("door", [[], ["--format", "preds"]])
def test_a_folder_that_holds_no_sweep_is_refused_and_left_as_it_is(
    door: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("text")
    run = export.main if door else compact.main
    assert run([str(tmp_path), *door]) == 2
    assert "is not a results folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_analyze_brings_the_tables_up_to_date_first(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(full_run())
    assert analyze.main([str(tmp_path)]) == 2  # it has no lock, so its numbers are refused
    assert layout.table_file("runs").exists()


@pytest.mark.parametrize(
    ("door", "words"),
    [
        (compact.main, ["."]),
        (analyze.main, ["."]),
        (export.main, [".", "--format", "preds"]),
        (ingest.main, [".", "--out", ".", "--token-counter", "chars/3.6"]),
    ],
)
def test_a_door_says_so_where_another_keeps_the_tables(
    door: Callable[[list[str]], int],
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "exclusive_claim", partial(exclusive_claim, wait_s=0))
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(full_run())
    monkeypatch.chdir(tmp_path)
    with exclusive_claim(layout.compaction_claim):
        assert door(words) in (1, 2)
    assert "wait for it to end" in capsys.readouterr().err
