"""Sessions on this machine: listed without being opened, priced by the name of their tool."""

import os
from pathlib import Path

import pytest

from pipeline.replay import main
from pipeline.sessions.found import all_sessions, listing, sessions_of
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import session
from tests.records.foreign.test_codex import rollout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    claude = write_lines(tmp_path / ".claude" / "projects" / "p" / "s.jsonl", session())
    codex = write_lines(tmp_path / ".codex" / "sessions" / "2025" / "12" / "r.jsonl", rollout())
    archived = write_lines(tmp_path / ".codex" / "archived_sessions" / "a.jsonl", rollout())
    for age, path in enumerate((claude, archived, codex)):
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return tmp_path


def environment() -> dict[str, str]:
    return dict(os.environ)


def test_all_tools_are_listed_newest_first(home: Path) -> None:
    found = all_sessions(environment())
    assert [(s.tool, s.path.name) for s in found] == [
        ("claude-code", "s.jsonl"),
        ("codex", "a.jsonl"),
        ("codex", "r.jsonl"),
    ]
    assert found[0].n_bytes == (home / ".claude/projects/p/s.jsonl").stat().st_size


def test_nothing_is_opened_for_the_listing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last access stays that of the writing; a file without rights to read is listed too."""
    path = home / ".claude/projects/p/s.jsonl"
    path.chmod(0)
    assert main(["sessions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("claude-code  ~/.claude/projects/p/s.jsonl")
    assert any(line.startswith("opencode: none in") for line in lines)
    assert "Nothing was opened" in lines[-1]
    assert path.stat().st_atime == 1_700_000_000


def test_folders_that_tools_are_told_to_use_are_looked_into(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = home / "elsewhere"
    write_lines(elsewhere / "projects" / "q" / "t.jsonl", session())
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", f"{elsewhere}, {home / '.claude'}")
    monkeypatch.setenv("CODEX_HOME", str(elsewhere))
    assert [s.path.name for s in sessions_of("claude-code", environment())] == [
        "t.jsonl",
        "s.jsonl",
    ]
    assert sessions_of("codex", environment()) == []


@pytest.mark.usefixtures("home")
def test_a_tools_name_stands_for_its_sessions_and_its_prices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["claude-code"]) == 0
    assert "1 session with 2 calls" in (text := capsys.readouterr().out)
    assert "anthropic" in text
    assert main(["codex"]) == 0
    assert "(openai: gpt_5_6)" in capsys.readouterr().out


@pytest.mark.usefixtures("home")
def test_a_tool_without_sessions_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opencode"]) == 2
    assert "no session of opencode is on this machine" in capsys.readouterr().err


def test_a_folder_of_that_name_comes_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(home / "codex" / "x.jsonl", session())
    assert main(["codex", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_listing_of_a_machine_without_sessions_says_where_it_looked(tmp_path: Path) -> None:
    text = "\n".join(listing([], {"HOME": str(tmp_path)}))
    assert f"claude-code: none in {tmp_path}/.claude" in text
