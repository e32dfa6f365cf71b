"""Results of large logs are kept: the same again is not replayed, anything else is."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.replaying.replay import ReplaySettings
from pipeline.sessions.jobs import Job, replayed
from pipeline.sessions.kept import MAX_AGE_S, MIN_BYTES, forget_old, kept_folder, replayed_or_kept
from tests.context.arms import arm
from tests.context.test_money import PRICING
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import answer, said, text, use, user


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = [
        user("u1", None, "Mend the scale."),
        said("a1", "u1", use("t1", "cat scale.py"), out=31),
        user("u2", "a1", answer("t1", "word " * (MIN_BYTES // 5))),
        said("a4", "u2", text("Done."), message="msg_2"),
    ]
    whole = arm("full_history")
    return Job(
        source=write_lines(tmp_path / "projects" / "p" / "s.jsonl", lines),
        reference=whole,
        arms=(whole,),
        settings=ReplaySettings(),
        pricing=PRICING,
        prices="claude_sonnet_5m",
        counter="chars/3.6",
        by_call=False,
    )


def entries() -> list[Path]:
    return sorted(kept_folder().glob("*.pickle"))


def test_the_same_job_is_taken_from_what_is_kept(job: Job) -> None:
    first = replayed_or_kept(job)
    (entry,) = entries()
    entry.touch()
    before = entry.stat().st_mtime_ns
    assert replayed_or_kept(job) == first == replayed(job)
    assert [e.stat().st_mtime_ns for e in entries()] == [before]


def test_a_folder_that_moved_holds_the_same_files(job: Job, tmp_path: Path) -> None:
    replayed_or_kept(job)
    moved = tmp_path / "elsewhere" / "projects" / "p" / "s.jsonl"
    moved.parent.mkdir(parents=True)
    job.source.rename(moved)
    replayed_or_kept(replace(job, source=moved))
    assert len(entries()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"prices": "gpt_5"},
        {"counter": "sim"},
        {"settings": ReplaySettings(block_tokens=1)},
        {"arms": (arm("observation_mask"),)},
        {"billed_elsewhere": frozenset({"msg_1"})},
        {"page": True},
    ],
)
def test_another_job_on_the_same_file_is_done_anew(job: Job, change: dict[str, object]) -> None:
    replayed_or_kept(job)
    other = replace(job, **change)  # type: ignore[arg-type]
    assert replayed_or_kept(other) == replayed(other)
    assert len(entries()) == 2


def test_the_same_lines_as_a_sub_agents_are_another_session(job: Job) -> None:
    replayed_or_kept(job)
    beside = job.source.parent / "subagents" / "s.jsonl"
    beside.parent.mkdir()
    job.source.rename(beside)
    replayed_or_kept(replace(job, source=beside))
    assert len(entries()) == 2


def test_a_line_more_is_another_file(job: Job) -> None:
    before = replayed_or_kept(job)
    more = said("a5", "a4", text("More."), message="msg_3")
    with job.source.open("a") as log:
        log.write(json.dumps(more) + "\n")
    after = replayed_or_kept(job)
    assert after.results[0].row.n_calls == before.results[0].row.n_calls + 1


def test_a_damaged_entry_is_as_good_as_none(job: Job) -> None:
    first = replayed_or_kept(job)
    (entry,) = entries()
    for content in (b"", b"nonsense", entry.read_bytes()[:100]):
        entry.write_bytes(content)
        assert replayed_or_kept(job) == first


def test_small_files_leave_nothing_behind(job: Job, tmp_path: Path) -> None:
    lines = [user("u1", None, "Hi."), said("a1", "u1", text("Ho."))]
    replayed_or_kept(replace(job, source=write_lines(tmp_path / "small.jsonl", lines)))
    assert entries() == []


def test_a_folder_that_cannot_be_written_stops_nobody(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert replayed_or_kept(job) == replayed(job)


def test_what_nobody_asked_for_in_a_month_is_removed(job: Job) -> None:
    replayed_or_kept(job)
    (entry,) = entries()
    now = entry.stat().st_mtime
    forget_old(kept_folder(), now_s=now + MAX_AGE_S - 1)
    assert entries() == [entry]
    os.utime(entry, (now, now - 10))
    forget_old(kept_folder(), now_s=now + MAX_AGE_S)
    assert entries() == []


def test_only_the_user_may_look_at_what_is_kept(job: Job) -> None:
    replayed_or_kept(job)
    assert kept_folder().stat().st_mode & 0o077 == 0
