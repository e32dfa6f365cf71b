"""opencode's database: one test for each trap of the format."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import ingest as ingest_door
from pipeline.records.failure import FailureClass
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.foreign.opencode import CLEARED, is_opencode, runs_from_opencode
from pipeline.records.foreign.run import ForeignRun
from pipeline.views.trajectory import Part
from tests.records.foreign.files import words

SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, title TEXT, version TEXT);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
"""
NOON_MS = 1_764_590_400_000

Said = tuple[dict[str, Any], list[dict[str, Any]]]


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def tool(call_id: str, command: str, output: str, **state: Any) -> dict[str, Any]:
    known = {"status": "completed", "input": {"command": command}, "output": output, "time": {}}
    return {"type": "tool", "callID": call_id, "tool": "bash", "state": {**known, **state}}


def tokens(fresh: int, read: int = 0, write: int = 0) -> dict[str, Any]:
    return {"input": fresh, "output": 10, "reasoning": 5, "cache": {"read": read, "write": write}}


def reply(at_s: int, *parts: dict[str, Any], used: dict[str, Any], **more: Any) -> Said:
    time = {"created": NOON_MS + 1000 * at_s, "completed": NOON_MS + 1000 * at_s + 500}
    data = {"role": "assistant", "modelID": "m", "time": time, "tokens": used, "cost": 0, **more}
    return data, list(parts)


ASKED: Said = ({"role": "user", "time": {"created": NOON_MS}}, [text("Mend the scale.")])


def conversation() -> list[Said]:
    return [
        ASKED,
        reply(
            1,
            {"type": "reasoning", "text": "Look first."},
            tool("c1", "cat scale.py", "FACTOR = 1", time={"compacted": NOON_MS + 5000}),
            used=tokens(4, 90, 20),
        ),
        reply(2, tool("c2", "ls", "", status="error", error="no such folder"), used=tokens(9, 110)),
        reply(9, text("Done."), used=tokens(7, 130)),
    ]


def database(path: Path, *sessions: list[Said], parents: tuple[str | None, ...] = (None,)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        for number, (said, parent) in enumerate(zip(sessions, parents, strict=True)):
            name = f"ses_{number}"
            connection.execute("INSERT INTO session VALUES (?, ?, 't', '1.2')", [name, parent])
            for place, (data, parts) in enumerate(said):
                message = f"{name}-msg_{place:03d}"
                row = [message, name, NOON_MS + place, json.dumps(data)]
                connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
                for index, part in enumerate(parts):
                    row = [f"{message}-prt_{index}", message, name, json.dumps(part)]
                    connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    return path


def read(tmp_path: Path, said: list[Said]) -> ForeignRun:
    (run,) = runs_from_opencode(database(tmp_path / "opencode.db", said), words)
    return run


def test_the_prompt_includes_cache_reads_and_writes_and_the_output_its_reasoning(
    tmp_path: Path,
) -> None:
    run = read(tmp_path, conversation())
    first = run.calls[0]
    assert (first.prompt_tokens, first.cached_tokens, first.cache_write_tokens) == (114, 90, 20)
    assert (first.completion_tokens, first.reasoning_tokens) == (15, 5)
    assert [c.prompt_tokens for c in run.calls] == [114, 119, 137]
    assert (run.agent, run.agent_version, run.model) == ("opencode", "1.2", "m")


def test_tools_results_and_errors_are_observations(tmp_path: Path) -> None:
    run = read(tmp_path, conversation())
    found = [(m.command, m.content, m.returncode) for m in run.trajectory.observations()]
    assert found == [("cat scale.py", "FACTOR = 1", 0), ("ls", "no such folder", 1)]
    assert run.trajectory.messages[1].reasoning == "Look first."


def test_an_output_that_its_own_pruner_removed_is_shown_as_cleared_from_then_on(
    tmp_path: Path,
) -> None:
    calls = read(tmp_path, conversation()).calls
    assert [len(c.edits) for c in calls] == [0, 0, 1]
    (edit,) = calls[2].edits
    assert (edit.message_index, edit.part, edit.text) == (2, Part.CONTENT, CLEARED)


def test_a_reply_of_several_steps_is_as_many_calls(tmp_path: Path) -> None:
    finish = [{"type": "step-finish", "tokens": tokens(n)} for n in (50, 70)]
    parts = [tool("c1", "ls", "a"), finish[0], text("Done."), finish[1]]
    run = read(tmp_path, [ASKED, reply(1, *parts, used=tokens(120))])
    assert [c.prompt_tokens for c in run.calls] == [50, 70]
    assert len(run.trajectory.turns) == 2


def test_a_summary_replaces_the_history(tmp_path: Path) -> None:
    said = [*conversation(), reply(10, text("So far."), used=tokens(150), summary=True)]
    said.append(reply(11, text("Going on."), used=tokens(30)))
    run = read(tmp_path, said)
    assert {e.message_index for e in run.calls[-1].edits} == set(range(6))


def test_a_sub_agents_session_is_a_run_of_its_own(tmp_path: Path) -> None:
    path = database(
        tmp_path / "opencode.db", conversation(), conversation()[:2], parents=(None, "ses_0")
    )
    runs = list(runs_from_opencode(path, words))
    assert [len(run.calls) for run in runs] == [3, 1]
    assert [bool(run.notes) for run in runs] == [False, True]
    assert len({run.digest for run in runs}) == 2


def test_the_error_that_ended_a_session_is_classed(tmp_path: Path) -> None:
    error = {"name": "ProviderAuthError", "data": {"message": "Invalid API key"}}
    run = read(tmp_path, [ASKED, reply(1, used=tokens(5), error=error)])
    assert (run.failure_class, run.failure) == (FailureClass.INFRA_SERVER, "Invalid API key")


def test_nothing_is_written_beside_a_database_with_pending_changes(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", conversation())
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        data, _ = reply(20, text("Later."), used=tokens(9))
        row = ["z", "ses_0", NOON_MS + 99, json.dumps(data)]
        with writer:
            writer.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.suffix != ".db-shm"}
        (run,) = runs_from_opencode(path, words)
        assert len(run.calls) == 4
        after = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.suffix != ".db-shm"}
        assert after == before


def test_a_read_only_folder_is_read(tmp_path: Path) -> None:
    path = database(tmp_path / "db" / "opencode.db", conversation())
    path.parent.chmod(0o555)
    try:
        assert len(list(runs_from_opencode(path, words))) == 1
    finally:
        path.parent.chmod(0o755)


def test_other_databases_are_passed_over(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE session (id TEXT)")
    (tmp_path / "text.db").write_text("no database")
    path = database(tmp_path / "opencode-stable.db", conversation())
    assert not is_opencode(other)
    assert list(trajectory_files(tmp_path)) == [path]
    (run,) = runs_in(path, words)
    assert str(run.instance_id).startswith("mend_the_scale-")


@pytest.mark.parametrize("times", [1, 2])
def test_all_sessions_of_a_database_are_ingested_once(tmp_path: Path, times: int) -> None:
    path = database(tmp_path / "o.db", conversation(), conversation()[:2], parents=(None, None))
    argv = [str(path), "--out", str(tmp_path / "out"), "--token-counter", "chars/3.6"]
    for _ in range(times):
        assert ingest_door.main(argv) == 0
    rows = pq.read_table(tmp_path / "out/tables/runs").to_pylist()
    assert sorted(row["n_calls"] for row in rows) == [1, 3]
    assert sorted(row["seed"] for row in rows) == [0, 1]
