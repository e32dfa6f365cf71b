from pathlib import Path

import pytest

from pipeline import compact
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
    assert "1 runs, 0 grades" in capsys.readouterr().out


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
    assert "1 runs" in shown.out


def test_compact_refuses_a_folder_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compact.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
