"""Folders of sessions: everything is priced once, what cannot be read is named."""

import json
from pathlib import Path

import pytest

from pipeline.replay import main
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import said, session, text

WHOLE = 124
"""Prompt tokens of each call of the session."""


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main([*arguments, "--json", "--processes", "1"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_fork_beside_its_parent_is_billed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parent's calls were billed in both files."""
    write_lines(tmp_path / "a.jsonl", session())
    forked = [{**entry, "forkedFrom": {"sessionId": "s"}} for entry in session()]
    own = said("f1", "a4", text("Another way."), message="msg_6")
    write_lines(tmp_path / "b.jsonl", [*forked, own])
    found = rows(capsys, str(tmp_path), "--pricing", "anthropic")
    assert [row["n_calls"] for row in found] == [2, 1]
    # 4 fresh, 100 read and 20 written tokens a call; the fullest output counts are 31, 9 and 9.
    costs = [(2 * 4 + 0.1 * 100 + 2.5 * 20 + 10 * out) / 1e6 for out in (31, 9, 9)]
    assert [row["cost_recorded"] for row in found] == pytest.approx([costs[0] + costs[1], costs[2]])


def test_the_answer_comes_first_and_is_money(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(tmp_path / "a.jsonl", session())
    assert main([str(path), "--pricing", "anthropic", "--arms", "observation_mask"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("1 session with 2 calls (2025-12-01) cost USD 0.0005")
    assert any(line.startswith("Self-check") for line in rest)


def test_other_files_of_a_folder_are_passed_over_and_broken_ones_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "good.jsonl", session())
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.jsonl").write_text('{"rows": 1}\n')
    (tmp_path / "empty.jsonl").write_text("")
    write_lines(tmp_path / "no-talk.jsonl", [{"sessionId": "s", "leafUuid": "x"}])
    assert main([str(tmp_path), "--json", "--processes", "1"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert "no-talk.jsonl cannot be replayed: it holds no conversation" in shown.err
    assert "1 of 2 sources were left out" in shown.err
