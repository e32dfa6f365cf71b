import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.records import part_file
from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.grade_record import ServerSample
from pipeline.records.journal import Journal, scan
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError
from pipeline.records.run_record import RunRecord
from pipeline.records.states import Progress, run_states
from pipeline.records.tables import compact
from tests.records.samples import full_run, grade_record, run_record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "sweep")


def journal_with(layout: Layout, name: str, *runs: RunRecord) -> Journal:
    journal = Journal(layout.journal(name))
    for run in runs:
        journal.append_run(run)
    return journal


def rows(layout: Layout, table: str) -> list[dict[str, Any]]:
    return pq.read_table(layout.table(table)).to_pylist() if layout.table(table).exists() else []


def row_of(layout: Layout, run_id: str, table: str = "runs") -> dict[str, Any]:
    (row,) = [r for r in rows(layout, table) if r["run_id"] == run_id]
    return row


def test_journals_become_tables(layout: Layout) -> None:
    run = full_run()
    with journal_with(layout, "w0", run, run_record("r1")) as journal:
        journal.append_grade(grade_record(run))
        journal.append_samples([ServerSample(worker="w0", sampled_at=1.0, running=2)])
    report = compact(layout)
    assert (report.n_runs, report.n_grades, report.n_superseded) == (2, 1, 0)
    assert row_of(layout, run.run_id)["input_tokens"] == 570
    assert len(rows(layout, "calls")) == 4
    assert len(rows(layout, "messages")) == 6
    assert len(rows(layout, "plan_events")) == 1
    assert row_of(layout, run.run_id, "grades")["resolved"] is True
    assert rows(layout, "server")[0]["running"] == 2
    assert rows(layout, "server")[0]["waiting"] is None
    assert [r["tools"] for r in rows(layout, "tools")] == list(run.tools.values())


def test_compacting_again_reads_only_what_has_grown(layout: Layout) -> None:
    first = journal_with(layout, "w0", full_run("r0"))
    journal_with(layout, "w1", full_run("r1")).close()
    assert compact(layout).journals_read == 2
    unchanged = layout.table_part("calls", "w1").stat()
    again = compact(layout)
    assert (again.journals_read, again.journals_unchanged, again.n_runs) == (0, 2, 2)
    first.append_run(full_run("r2"))
    first.close()
    assert compact(layout).journals_read == 1
    assert {r["run_id"] for r in rows(layout, "runs")} == {"r0", "r1", "r2"}
    assert {r["run_id"] for r in rows(layout, "calls")} == {"r0", "r1", "r2"}
    assert layout.table_part("calls", "w1").stat().st_mtime_ns == unchanged.st_mtime_ns


def test_step_by_step_compaction_gives_the_tables_of_one_compaction(
    layout: Layout, tmp_path: Path
) -> None:
    whole = Layout(tmp_path / "whole")
    runs = [full_run(f"r{i}", attempt=i + 1) for i in range(4)]
    runs.insert(2, run_record("r3", failure_class=FailureClass.INFRA_SERVER))
    with Journal(layout.journal("w0")) as journal:
        for run in runs:
            journal.append_run(run)
            compact(layout)
    journal_with(whole, "w0", *runs).close()
    compact(whole)
    for table in ("runs", "calls", "messages", "superseded"):
        assert rows(layout, table) == rows(whole, table)


def test_an_infrastructure_failure_is_a_row_until_the_run_succeeds(layout: Layout) -> None:
    failed = full_run("r0", failure_class=FailureClass.INFRA_NODE, finished_at=10.0)
    journal_with(layout, "w0", failed).close()
    compact(layout)
    assert row_of(layout, "r0")["failure_class"] == "infra_node"
    assert len(rows(layout, "calls")) == 4
    journal_with(layout, "w1", run_record("r0", attempt=2, finished_at=20.0)).close()
    compact(layout)
    assert row_of(layout, "r0")["failure_class"] == "ok"
    assert rows(layout, "calls") == []
    (lost,) = rows(layout, "superseded")
    assert (lost["reason"], lost["failure_class"]) == ("infra_retried", "infra_node")


def test_the_earliest_of_two_valid_records_wins_and_the_other_is_kept(layout: Layout) -> None:
    journal_with(layout, "w0", full_run("r0", finished_at=20.0, worker="late")).close()
    journal_with(layout, "w1", full_run("r0", finished_at=10.0, worker="early")).close()
    compact(layout)
    assert row_of(layout, "r0")["worker"] == "early"
    (lost,) = rows(layout, "superseded")
    assert (lost["reason"], lost["journal"]) == ("duplicate", "w0")
    assert len(rows(layout, "calls")) == 4


def test_equal_times_are_decided_by_the_journal_name(layout: Layout) -> None:
    journal_with(layout, "w1", full_run("r0", worker="b")).close()
    journal_with(layout, "w0", full_run("r0", worker="a")).close()
    compact(layout)
    assert row_of(layout, "r0")["worker"] == "a"


def test_what_is_in_the_tables_stays_the_result(layout: Layout) -> None:
    journal_with(layout, "w1", full_run("r0", finished_at=20.0, worker="first")).close()
    compact(layout)
    journal_with(layout, "w0", full_run("r0", finished_at=10.0, worker="late news")).close()
    compact(layout)
    assert row_of(layout, "r0")["worker"] == "first"
    assert run_states(layout)["r0"].journal == "w1"


def test_a_grade_of_another_patch_is_stale(layout: Layout) -> None:
    run = full_run("r0")
    with journal_with(layout, "w0", run) as journal:
        journal.append_grade(grade_record(run, patch_sha256="old", finished_at=1.0))
        assert run_states(layout)["r0"].progress is Progress.DONE
        journal.append_grade(grade_record(run, resolved=False, finished_at=2.0))
    compact(layout)
    assert row_of(layout, "r0", "grades")["resolved"] is False
    (lost,) = rows(layout, "superseded")
    assert (lost["record"], lost["reason"]) == ("grade", "stale_patch")
    assert run_states(layout)["r0"].progress is Progress.GRADED


def test_a_failed_grading_gives_way_to_one_that_worked(layout: Layout) -> None:
    run = run_record("r0")
    failed = grade_record(run, grade_class=GradeClass.GRADE_INFRA, resolved=None)
    with journal_with(layout, "w0", run) as journal:
        journal.append_grade(failed)
        assert run_states(layout)["r0"].to_grade
        compact(layout)
        assert row_of(layout, "r0", "grades")["resolved"] is None
        journal.append_grade(grade_record(run, attempt=2, finished_at=300.0))
    compact(layout)
    assert row_of(layout, "r0", "grades")["resolved"] is True
    assert rows(layout, "superseded")[0]["reason"] == "infra_retried"


def test_the_patch_of_a_capped_run_is_graded_apart(layout: Layout) -> None:
    run = run_record("r0", patch="", limit_patch="d", failure_class=FailureClass.LIMIT_STEPS)
    none = grade_record(run, grade_class=GradeClass.UNRESOLVED, resolved=False, patch_exists=False)
    with journal_with(layout, "w0", run) as journal:
        journal.append_grade(none)
        journal.append_grade(
            grade_record(run, patch_kind="limit", patch_sha256=run.limit_patch_sha256)
        )
    compact(layout)
    assert row_of(layout, "r0", "grades")["resolved"] is False
    assert row_of(layout, "r0", "limit_grades")["resolved"] is True
    assert run_states(layout)["r0"].limit_grade_class is GradeClass.RESOLVED


def test_states_tell_missing_failed_done_and_graded_apart(layout: Layout) -> None:
    done, graded = run_record("done"), run_record("graded", patch="other")
    failed = run_record("failed", failure_class=FailureClass.INFRA_DISK)
    with journal_with(layout, "w0", failed, done, graded, replace(failed, attempt=2)) as journal:
        journal.append_grade(grade_record(graded))
    states = run_states(layout, ["absent", "done"])
    assert {k: s.progress.value for k, s in states.items()} == {
        "absent": "missing",
        "failed": "infra_failed",
        "done": "done",
        "graded": "graded",
    }
    assert states["failed"].infra_attempts == 2
    assert {s.run_id for s in states.values() if s.to_run} == {"absent", "failed"}
    assert states["graded"].resolved is True


def test_a_corrupt_frame_is_named_and_the_rest_is_compacted(layout: Layout) -> None:
    journal_with(layout, "w0", full_run("r0"), full_run("r1"), full_run("r2")).close()
    path = layout.journal("w0")
    frames = scan(path).frames
    data = bytearray(path.read_bytes())
    data[frames[1].offset + 60] ^= 1
    path.write_bytes(bytes(data) + b"torn")
    report = compact(layout)
    assert [d.offset for d in report.damages["w0"]] == [frames[1].offset]
    assert report.torn == {"w0": 4}
    assert {r["run_id"] for r in rows(layout, "messages")} == {"r0", "r2"}
    assert run_states(layout, ["r1"])["r1"].to_run


def test_a_journal_damaged_later_takes_nothing_out_of_the_tables(layout: Layout) -> None:
    journal = journal_with(layout, "w0", full_run("r0"), full_run("r1"))
    compact(layout)
    offset = scan(journal.path).frames[0].offset
    journal.append_run(full_run("r2"))
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[offset + 60] ^= 1
    journal.path.write_bytes(bytes(data))
    compact(layout)
    assert {r["run_id"] for r in rows(layout, "runs")} == {"r0", "r1", "r2"}
    assert {r["run_id"] for r in rows(layout, "messages")} == {"r0", "r1", "r2"}
    assert run_states(layout)["r0"].progress is Progress.DONE


def test_a_compaction_that_died_before_its_commit_is_simply_done_again(layout: Layout) -> None:
    journal_with(layout, "w0", full_run("r0", finished_at=20.0)).close()
    compact(layout)
    layout.table_file("runs").unlink()  # as if it had died just before the last rename
    journal_with(layout, "w1", full_run("r0", finished_at=10.0)).close()
    compact(layout)
    assert row_of(layout, "r0")["journal"] == "w1"
    assert len(rows(layout, "calls")) == 4


class Killed(BaseException):
    """Stands for a kill: nothing in the package catches it."""


def test_a_compaction_stopped_at_any_write_ends_in_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(name: str) -> Layout:
        layout = Layout(tmp_path / name)
        run = full_run("r0", finished_at=20.0)
        journal_with(layout, "w0", replace(run, failure_class=FailureClass.INFRA_NODE)).close()
        compact(layout)
        with journal_with(layout, "w1", full_run("r1"), run) as journal:
            journal.append_grade(grade_record(run))
        return layout

    names = ("runs", "calls", "messages", "grades", "superseded", "tools")
    whole = folder("whole")
    compact(whole)
    expected = [rows(whole, name) for name in names]
    put, stops = Path.replace, 0
    while True:
        layout, left = folder(f"stopped{stops}"), iter(range(stops))

        def stopping(file: Path, path: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise Killed
            return put(file, path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stopping)
            try:
                compact(layout)
            except Killed:
                stops += 1
            else:
                break
        compact(layout)
        assert [rows(layout, name) for name in names] == expected
    assert stops > 8


def test_parts_in_many_row_groups_hold_the_same_rows_and_keep_those_of_a_damaged_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [full_run(f"r{number}", finished_at=float(number)) for number in range(6)]
    whole, split = Layout(tmp_path / "whole"), Layout(tmp_path / "split")
    for layout in (whole, split):
        journal_with(layout, "w0", *runs).close()
    compact(whole)
    monkeypatch.setattr(part_file, "ROW_GROUP_BYTES", 1500)
    compact(split)
    path = split.table_part("messages", "w0")
    assert pq.ParquetFile(path).num_row_groups > 3
    names = ("runs", "calls", "messages", "plan_events")
    expected = [rows(whole, name) for name in names]
    assert [rows(split, name) for name in names] == expected
    # Everything but the last frame is lost; its rows, and those in the tables already, stay.
    journal = split.journal("w0")
    offset = max(row["journal_offset"] for row in rows(split, "runs"))
    with journal.open("r+b") as file:
        file.write(b"x" * (offset - 10))
        file.seek(0, 2)
        file.write(b"grown")
    compact(split)
    order = itemgetter("run_id", "message_index")
    assert sorted(rows(split, "messages"), key=order) == sorted(expected[2], key=order)
    assert not list(split.root.rglob("*.tmp"))


def test_an_empty_folder_has_empty_tables(layout: Layout) -> None:
    report = compact(layout)
    assert (report.n_runs, report.journals_read) == (0, 0)
    assert rows(layout, "runs") == []


def test_two_processes_compacting_at_once_give_one_result(layout: Layout) -> None:
    for number in range(6):
        journal_with(layout, f"w{number}", full_run(f"r{number}"), full_run("shared")).close()
    script = (
        "import sys; from pathlib import Path; from pipeline.records.layout import Layout; "
        "from pipeline.records.tables import compact; compact(Layout(Path(sys.argv[1])))"
    )
    argv = [sys.executable, "-c", script, str(layout.root)]
    children = [subprocess.Popen(argv, cwd=ROOT) for _ in range(2)]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    assert len(rows(layout, "runs")) == 7
    assert len(rows(layout, "calls")) == 7 * 4
    assert len(rows(layout, "superseded")) == 5
    assert not layout.compaction_claim.exists()


def test_a_full_disk_leaves_the_old_tables(layout: Layout) -> None:
    journal_with(layout, "w0", full_run("r0")).close()
    compact(layout)
    before = layout.table_file("runs").read_bytes()
    journal_with(layout, "w1", full_run("r1")).close()
    script = """
import resource, sys
from pathlib import Path
from pipeline.records.failure import DiskError
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError
from pipeline.records.tables import compact
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    compact(Layout(Path(sys.argv[1])))
except DiskError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(layout.root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "writing the tables" in done.stdout
    assert layout.table_file("runs").read_bytes() == before
    assert list(layout.root.rglob("*.tmp")) == []
    assert compact(layout).n_runs == 2


TABLES_OF_A_SWEEP = ("runs", "grades", "calls", "messages", "plan_events", "server", "tools")


def a_compacted_sweep(layout: Layout) -> dict[str, list[dict[str, Any]]]:
    run = full_run()
    with journal_with(layout, "w0", run, run_record("r1")) as journal:
        journal.append_grade(grade_record(run))
        journal.append_samples([ServerSample(worker="w0", sampled_at=1.0)])
    compact(layout)
    return {name: rows(layout, name) for name in TABLES_OF_A_SWEEP}


@pytest.mark.parametrize("name", TABLES_OF_A_SWEEP)
def test_a_table_that_was_deleted_is_made_anew(layout: Layout, name: str) -> None:
    before = a_compacted_sweep(layout)
    for path in layout.table(name).iterdir():
        path.unlink()
    compact(layout)
    assert {name: rows(layout, name) for name in TABLES_OF_A_SWEEP} == before


@pytest.mark.parametrize("name", ["calls", "messages", "plan_events", "server"])
def test_a_part_that_was_cut_is_made_anew(layout: Layout, name: str) -> None:
    before = a_compacted_sweep(layout)
    path = layout.table_part(name, "w0")
    path.write_bytes(path.read_bytes()[:100])
    compact(layout)
    assert {name: rows(layout, name) for name in TABLES_OF_A_SWEEP} == before


@pytest.mark.parametrize("name", ["runs", "grades", "tools"])
def test_a_damaged_table_is_named_with_what_to_do_and_that_helps(layout: Layout, name: str) -> None:
    before = a_compacted_sweep(layout)
    layout.table_file(name).write_bytes(b"PAR1 not any more")
    with pytest.raises(
        LockError, match=r"part.parquet is damaged; move the folder's `tables` away"
    ):
        compact(layout)
    layout.tables.rename(layout.root / "damaged")
    compact(layout)
    assert {name: rows(layout, name) for name in TABLES_OF_A_SWEEP} == before
