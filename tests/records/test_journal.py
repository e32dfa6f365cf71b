import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.records.failure import DiskError, FailureClass
from pipeline.records.frames import FrameKind
from pipeline.records.grade_record import ServerSample
from pipeline.records.journal import Journal, grade_of, new_journal, run_of, samples_of, scan
from pipeline.records.layout import Layout
from pipeline.records.run_record import RunRecord
from tests.records.samples import bounded, drawn_runs, full_run, grade_record, run_record


def test_what_was_appended_reads_back_equal(tmp_path: Path) -> None:
    run = full_run()
    sample = ServerSample(worker="w0", sampled_at=1.0, running=3, kv_usage=0.5)
    with Journal(tmp_path / "w0.journal") as journal:
        journal.append_run(run)
        journal.append_grade(grade_record(run))
        journal.append_samples([sample, replace(sample, sampled_at=2.0)])
    found = scan(tmp_path / "w0.journal")
    assert [f.kind for f in found.frames] == [FrameKind.RUN, FrameKind.GRADE, FrameKind.SERVER]
    assert run_of(found.frames[0]) == run
    assert grade_of(found.frames[1]) == grade_record(run)
    assert samples_of(found.frames[2]) == (sample, replace(sample, sampled_at=2.0))
    assert found.tail_bytes == 0
    assert found.damages == ()


@bounded
@given(runs=st.lists(drawn_runs(), min_size=1, max_size=3))
def test_any_run_survives_the_journal(
    runs: list[RunRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("j") / "w.journal"
    with Journal(path) as journal:
        for run in runs:
            journal.append_run(run)
    assert [run_of(f) for f in scan(path).frames] == runs


def test_half_a_surrogate_pair_does_not_cost_the_run(tmp_path: Path) -> None:
    with Journal(tmp_path / "w.journal") as journal:
        journal.append_run(run_record(failure="bad \ud83d char"))
    (frame,) = scan(tmp_path / "w.journal").frames
    assert run_of(frame).failure == "bad \\ud83d char"


def test_the_head_tells_the_state_without_unpacking(tmp_path: Path) -> None:
    run = full_run(failure_class=FailureClass.LIMIT_STEPS)
    with Journal(tmp_path / "w.journal") as journal:
        journal.append_run(run)
    (frame,) = scan(tmp_path / "w.journal").frames
    assert frame.head["run_id"] == run.run_id
    assert frame.head["failure_class"] == "limit_steps"
    assert frame.head["patch_sha256"] == run.patch_sha256
    assert frame.head["input_tokens"] == 100 + 300 + 20 + 150


@bounded
@given(cut=st.integers(min_value=0))
def test_a_torn_tail_costs_only_the_frame_being_written(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("j") / "w.journal"
    with Journal(path) as journal:
        for number in range(3):
            journal.append_run(run_record(f"r{number}"))
    whole = path.read_bytes()
    ends = [0, *(f.end for f in scan(path).frames)]
    kept = cut % (len(whole) + 1)
    path.write_bytes(whole[:kept])
    found = scan(path)
    assert len(found.frames) == sum(end <= kept for end in ends[1:])
    assert found.damages == ()
    assert found.good_end + found.tail_bytes == kept


@bounded
@given(where=st.integers(min_value=0), flip=st.integers(1, 255))
def test_a_corrupt_byte_costs_one_frame_and_is_named(
    where: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("j") / "w.journal"
    with Journal(path) as journal:
        for number in range(4):
            journal.append_run(run_record(f"r{number}"))
    frames = scan(path).frames
    data = bytearray(path.read_bytes())
    spot = where % frames[2].end  # in one of the first three frames
    data[spot] ^= flip
    path.write_bytes(bytes(data))
    found = scan(path)
    (hit,) = [f for f in frames if f.offset <= spot < f.end]
    assert [f.head["run_id"] for f in found.frames] == [
        f.head["run_id"] for f in frames if f is not hit
    ]
    (damage,) = found.damages
    assert (damage.offset, damage.n_bytes) == (hit.offset, hit.end - hit.offset)


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "w.journal"
    with Journal(path) as journal:
        journal.append_run(run_record("r0"))
        first = scan(path)
        journal.append_run(run_record("r1"))
        second = scan(path, first.good_end)
    assert [f.head["run_id"] for f in second.frames] == ["r1"]
    assert second.frames[0].offset == first.good_end


def test_two_writers_never_share_a_journal(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with new_journal(layout, "node1/0") as first, new_journal(layout, "node1/0") as second:
        assert first.path != second.path
        assert layout.journal_paths() == sorted([first.path, second.path])
    with pytest.raises(FileExistsError):
        Journal(first.path)


def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    # A child process, because the limit cannot be raised again in this one.
    script = """
import resource, signal, sys
from pathlib import Path
from pipeline.records.failure import DiskError
from pipeline.records.journal import Journal, scan
from tests.records.samples import bounded, run_record
journal = Journal(Path(sys.argv[1]))
journal.append_run(run_record("r0"))
before = journal.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (before + 100, resource.RLIM_INFINITY))
try:
    journal.append_run(run_record("r1"))
except DiskError as error:
    print(error)
assert journal.path.stat().st_size == before
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append_run(run_record("r2"))
print([f.head["run_id"] for f in scan(journal.path).frames], scan(journal.path).damages)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "w.journal")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert "command again: all that was finished is kept" in done.stdout
    assert done.stdout.splitlines()[-1] == "['r0', 'r2'] ()"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_with_no_space_left_keeps_what_was_finished(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        capture_output=True,
        timeout=30,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        with Journal(disk / "w.journal") as journal:
            journal.append_run(run_record("r0"))
            noise = os.urandom(200_000).hex()
            with pytest.raises(DiskError, match="no space is left"):
                journal.append_run(run_record("r1", patch=noise))
            journal.append_run(run_record("r2"))
        found = scan(disk / "w.journal")
        assert [f.head["run_id"] for f in found.frames] == ["r0", "r2"]
        assert found.tail_bytes == 0
        subprocess.run(
            ["mount", "-o", "remount,ro", str(disk)], timeout=30, check=True, capture_output=True
        )
        with pytest.raises(DiskError, match="read-only"):
            Journal(disk / "w2.journal")
        assert len(scan(disk / "w.journal").frames) == 2
    finally:
        subprocess.run(["umount", str(disk)], timeout=30, check=True, capture_output=True)
