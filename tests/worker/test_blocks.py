"""Which run is next: blocks in plan order, failed runs again, donors first."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.host.claim_file import Owner, this_owner
from pipeline.records.layout import Layout
from pipeline.records.plan import Block, PlannedRun, blocks_of
from pipeline.worker.blocks import BlockQueue, Outlook
from pipeline.worker.claims import ClaimBoard
from pipeline.worker.ledgers import Work


@dataclass
class Notebook:
    """A ledger on paper instead of in journals."""

    closed: set[str] = field(default_factory=set)
    not_yet: set[str] = field(default_factory=set)
    failed: dict[str, int] = field(default_factory=dict)

    def refresh(self) -> None:
        pass

    def work_on(self, run_id: str) -> Work:
        if run_id in self.closed:
            return Work.CLOSED
        return Work.NOT_YET if run_id in self.not_yet else Work.OPEN

    def failures(self, run_id: str) -> int:
        return self.failed.get(run_id, 0)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def planned(block: str, arm: str, phase: int = 1) -> PlannedRun:
    return PlannedRun(
        run_id=f"{block}-{arm}",
        block_id=block,
        position=0,
        phase=phase,
        benchmark="toy",
        instance_id="i",
        repo="r",
        model="sim",
        agent="mini",
        arm=arm,
        seed=0,
        cell_digest="c",
        row_sha256="d",
        evidence="sim",
    )


BLOCKS: list[Block] = blocks_of([planned(b, arm) for b in ("one", "two") for arm in ("a", "b")])


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def a_board(layout: Layout, *, remote: bool = False) -> ClaimBoard:
    owner = this_owner("w")
    if remote:
        owner = Owner(
            worker="r", host="r", machine="r", pid=1, start_ticks=1, slurm_job=None, nonce="r"
        )
    return ClaimBoard(layout, owner, stale_s=1000)


def a_queue(layout: Layout, ledger: Notebook, blocks: list[Block] = BLOCKS, **more) -> BlockQueue:
    return BlockQueue(blocks, a_board(layout), ledger, max_attempts=3, **more)


def take(queue: BlockQueue):
    """Return the next run, claiming as the loop does."""
    return queue.from_held() or (queue.from_held() if queue.claim_one() else None)


def test_a_block_is_handed_out_whole_before_the_next_is_claimed(layout: Layout) -> None:
    queue = a_queue(layout, Notebook())
    handed = [take(queue).run.run_id for _ in range(4)]
    assert handed == ["one-a", "one-b", "two-a", "two-b"]
    assert take(queue) is None


def test_a_block_is_published_when_its_last_run_is_recorded(layout: Layout) -> None:
    ledger = Notebook()
    queue = a_queue(layout, ledger)
    first, second = take(queue), take(queue)
    ledger.closed |= {"one-a", "one-b"}
    queue.finish(second, valid=True)
    assert not layout.claim_done("one").exists()
    queue.finish(first, valid=True)
    assert layout.claim_done("one").exists()
    assert queue.n_published == 1


def test_only_what_is_missing_of_a_block_is_run(layout: Layout) -> None:
    queue = a_queue(layout, Notebook(closed={"one-a", "two-a", "two-b"}))
    assert take(queue).run.run_id == "one-b"
    assert take(queue) is None
    assert queue.outlook() is Outlook.NOTHING


def test_a_run_that_another_worker_finished_meanwhile_is_not_handed_out(layout: Layout) -> None:
    """It hung, was taken over, and came back: it ran again what the other had just finished."""
    ledger = Notebook(closed={"two-a", "two-b"})
    queue = a_queue(layout, ledger)
    first = take(queue)
    ledger.closed |= {"one-a", "one-b"}
    assert take(queue) is None
    queue.finish(first, valid=True)
    assert layout.claim_done("one").exists()
    assert queue.outlook() is Outlook.NOTHING


def test_a_failed_run_comes_again_after_a_wait_with_the_next_attempt(layout: Layout) -> None:
    clock, ledger = Clock(), Notebook(closed={"one-b", "two-a", "two-b"})
    queue = a_queue(layout, ledger, now_s=clock)
    first = take(queue)
    assert first.attempt == 1
    ledger.failed["one-a"] = 1
    queue.finish(first, valid=False)
    assert take(queue) is None
    assert queue.outlook() is Outlook.MAYBE_LATER
    clock.now_s += 10
    assert take(queue).attempt == 2


def test_a_run_that_fails_too_often_is_left_to_the_next_launch(layout: Layout) -> None:
    clock, ledger = Clock(), Notebook(closed={"one-b", "two-a", "two-b"})
    queue = a_queue(layout, ledger, now_s=clock)
    for attempt in range(1, 4):
        clock.now_s += 1000
        assignment = take(queue)
        ledger.failed["one-a"] = attempt
        queue.finish(assignment, valid=False)
    clock.now_s += 1000
    assert take(queue) is None
    assert queue.outlook() is Outlook.NOTHING
    assert not layout.claim("one").exists()
    assert not layout.claim_done("one").exists()
    # A new launch starts counting anew, and the attempt's number goes on.
    assert take(a_queue(layout, ledger)).attempt == 4


def test_failures_that_others_recorded_meanwhile_count_too(layout: Layout) -> None:
    ledger = Notebook(closed={"one-b", "two-a", "two-b"})
    queue = a_queue(layout, ledger)
    ledger.failed["one-a"] = 3
    assert take(queue) is None


def test_a_block_that_another_holds_is_passed_over(layout: Layout) -> None:
    other = a_board(layout, remote=True)
    assert other.try_claim("one")
    queue = a_queue(layout, Notebook())
    assert take(queue).run.run_id == "two-a"


def test_a_claim_of_unknown_fate_is_worth_waiting_for_until_it_beats(layout: Layout) -> None:
    other = a_board(layout, remote=True)
    assert other.try_claim("one")
    queue = a_queue(layout, Notebook(closed={"two-a", "two-b"}))
    assert take(queue) is None
    assert queue.outlook() is Outlook.MAYBE_LATER
    other.beat()
    assert queue.outlook() is Outlook.NOTHING


def test_a_matched_run_waits_for_its_donors(layout: Layout) -> None:
    blocks = blocks_of([planned("two", "m", phase=2), planned("one", "a")])
    ledger = Notebook()
    queue = a_queue(layout, ledger, blocks, donors={"two-m": ["one-a"]})
    donor = take(queue)
    assert donor.run.run_id == "one-a"
    assert take(queue) is None
    ledger.closed.add("one-a")
    queue.finish(donor, valid=True)
    assert take(queue).run.run_id == "two-m"


def test_giving_back_releases_what_was_not_started_and_keeps_what_runs(layout: Layout) -> None:
    queue = a_queue(layout, Notebook())
    running = take(queue)
    queue.give_back_waiting()
    assert layout.claim("one").exists()
    assert take(queue).run.block_id == "two"
    queue.drop(running)
    assert not layout.claim("one").exists()


def test_a_mark_without_records_is_removed_and_the_block_run_again(layout: Layout) -> None:
    ledger = Notebook(closed={"two-a", "two-b"})
    layout.claims.mkdir()
    layout.claim_done("one").write_text("{}")
    queue = a_queue(layout, ledger)
    assert take(queue).run.run_id == "one-a"


def test_runs_that_are_not_there_yet_keep_a_block_from_being_marked(layout: Layout) -> None:
    ledger = Notebook(not_yet={"one-b"}, closed={"two-a", "two-b"})
    queue = a_queue(layout, ledger)
    assignment = take(queue)
    ledger.closed.add("one-a")
    queue.finish(assignment, valid=True)
    assert not layout.claim_done("one").exists()
    assert not layout.claim("one").exists()
