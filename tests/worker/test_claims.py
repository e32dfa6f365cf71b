"""Claims: exactly one owner a block, and a way on when that owner is gone."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pipeline.host.claim_file import Liveness, Owner, this_owner
from pipeline.host.proctable import process_identity
from pipeline.records.layout import Layout
from pipeline.worker.claims import Claim, ClaimBoard

BLOCKS = [f"block-{n:02d}" for n in range(50)]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def board(layout: Layout, clock: Clock | None = None, **changes) -> ClaimBoard:
    owner = this_owner("w")
    owner = Owner(**{**{f: getattr(owner, f) for f in Owner.__dataclass_fields__}, **changes})
    return ClaimBoard(layout, owner, stale_s=60, now_s=clock or time.monotonic)


def elsewhere(layout: Layout, clock: Clock | None = None) -> ClaimBoard:
    """A worker on another machine: its process cannot be looked at."""
    return board(layout, clock, host="other", machine="other-boot/1", pid=1)


def forkserver() -> multiprocessing.context.ForkServerContext:
    """Processes that start quickly and inherit no thread of the test runner's."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline.worker.claims", __name__])
    return context


def claim_all(root: Path, start, won) -> None:
    mine = ClaimBoard(Layout(root), this_owner("w"), stale_s=60)
    start.wait()
    for block in BLOCKS:
        if mine.try_claim(block):
            won.put(block)


def test_forty_processes_on_fifty_blocks_win_exactly_fifty(tmp_path: Path) -> None:
    context = forkserver()
    start, won = context.Event(), context.Queue()
    workers = [context.Process(target=claim_all, args=(tmp_path, start, won)) for _ in range(40)]
    for worker in workers:
        worker.start()
    start.set()
    wins = [won.get(timeout=60) for _ in BLOCKS]
    for worker in workers:
        worker.join(timeout=60)
    assert sorted(wins) == BLOCKS
    assert won.empty()
    assert sorted(p.name for p in Layout(tmp_path).claims.iterdir()) == [
        f"{block}.claim" for block in BLOCKS
    ]


def test_a_claim_names_its_owner_and_is_complete_at_once(layout: Layout) -> None:
    board(layout).try_claim("b")
    content = json.loads(layout.claim("b").read_bytes())
    assert content["owner"]["pid"] == os.getpid()
    assert content["owner"]["start_ticks"] == process_identity(os.getpid()).start_ticks
    assert content["counter"] == "000000000000"


def test_a_claim_is_stale_once_its_counter_stood_still_on_the_observers_clock(
    layout: Layout,
) -> None:
    clock = Clock()
    elsewhere(layout).try_claim("b")
    observer = board(layout, clock)
    assert observer.observe("b") is Liveness.UNKNOWN
    clock.now_s += 59
    assert observer.observe("b") is Liveness.UNKNOWN
    assert observer.take_over("b") is None
    clock.now_s += 1
    assert observer.observe("b") is Liveness.STALE
    assert observer.take_over("b") is not None


def test_the_time_a_claim_stood_before_anyone_looked_does_not_count(layout: Layout) -> None:
    elsewhere(layout).try_claim("b")
    os.utime(layout.claim("b"), (0, 0))
    assert board(layout, Clock()).observe("b") is Liveness.UNKNOWN


def test_a_beating_claim_is_alive_however_long_it_is_watched(layout: Layout) -> None:
    clock = Clock()
    owner, observer = elsewhere(layout), board(layout, clock)
    owner.try_claim("b")
    observer.observe("b")
    for _ in range(10):
        clock.now_s += 50
        assert owner.beat() == []
        assert observer.observe("b") is Liveness.ALIVE
    clock.now_s += 61
    assert observer.observe("b") is Liveness.STALE


def test_only_one_of_two_observers_takes_a_stale_claim_over(layout: Layout) -> None:
    clock = Clock()
    elsewhere(layout).try_claim("b")
    first, second = board(layout, clock), board(layout, clock, nonce="2")
    first.observe("b")
    second.observe("b")
    clock.now_s += 61
    assert first.take_over("b") is not None
    assert second.take_over("b") is None


def test_the_heartbeat_of_a_lost_claim_cannot_touch_the_new_owners(layout: Layout) -> None:
    clock = Clock()
    hung = elsewhere(layout)
    hung.try_claim("b")
    taker = board(layout, clock)
    taker.observe("b")
    clock.now_s += 61
    assert taker.take_over("b") is not None
    taken = layout.claim("b").read_bytes()
    assert hung.beat() == ["b"]
    assert layout.claim("b").read_bytes() == taken
    assert taker.beat() == []


def test_releasing_or_publishing_a_lost_claim_leaves_the_new_owners_in_place(
    layout: Layout,
) -> None:
    clock = Clock()
    hung = elsewhere(layout)
    lost = [hung.try_claim(name) for name in ("b", "c")]
    taker = board(layout, clock)
    for name in ("b", "c"):
        taker.observe(name)
    clock.now_s += 61
    for name in ("b", "c"):
        assert taker.take_over(name) is not None
    hung.release(lost[0])
    hung.publish(lost[1])
    assert taker.beat() == []
    assert layout.claim_done("c").exists()
    assert not list(layout.claims.glob(".*"))


class HesitantClaim(Claim):
    """Between looking at the claim and writing into it, a beat waits until it is told to go on."""

    def __init__(self, path: Path) -> None:
        super().__init__("b", path, os.open(path, os.O_RDWR))
        self.looked, self.go_on = threading.Event(), threading.Event()

    def is_ours(self) -> bool:
        self.looked.set()
        self.go_on.wait(10)
        return super().is_ours()


def test_a_claim_given_back_in_the_middle_of_a_beat_is_closed_after_it(layout: Layout) -> None:
    """The number of a closed descriptor may be another file's by the time a beat writes to it."""
    board(layout).try_claim("b")
    claim = HesitantClaim(layout.claim("b"))
    beats: list[bool] = []
    beating = threading.Thread(target=lambda: beats.append(claim.beat()))
    closing = threading.Thread(target=claim.close)
    beating.start()
    claim.looked.wait(10)
    closing.start()
    closing.join(timeout=0.1)
    claim.go_on.set()
    beating.join()
    closing.join()
    assert beats == [True]
    assert claim.beat() is False


def die_holding(root: Path) -> None:
    ClaimBoard(Layout(root), this_owner("w"), stale_s=60).try_claim("b")
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_claim_of_a_process_killed_on_this_machine_is_stale_at_once(tmp_path: Path) -> None:
    victim = forkserver().Process(target=die_holding, args=(tmp_path,))
    victim.start()
    victim.join(timeout=60)
    observer = board(Layout(tmp_path), Clock())
    assert observer.observe("b") is Liveness.STALE
    assert observer.take_over("b") is not None


def test_a_neighbours_living_process_is_no_sign_of_life_but_its_counter_is(
    layout: Layout,
) -> None:
    clock = Clock()
    neighbour, observer = board(layout, nonce="neighbour"), board(layout, clock)
    neighbour.try_claim("b")
    assert observer.observe("b") is Liveness.UNKNOWN
    neighbour.beat()
    assert observer.observe("b") is Liveness.ALIVE
    clock.now_s += 61
    assert observer.observe("b") is Liveness.STALE


def test_a_released_block_can_be_claimed_again_and_a_published_one_is_marked_done(
    layout: Layout,
) -> None:
    mine = board(layout)
    mine.release(mine.try_claim("b"))
    assert "b" not in mine.claimed()
    mine.publish(mine.try_claim("b"))
    assert "b" in mine.done()
    assert "b" not in mine.claimed()
    assert mine.held() == []


def test_a_file_that_is_no_claim_is_judged_by_standing_still(layout: Layout) -> None:
    clock = Clock()
    layout.claims.mkdir()
    layout.claim("b").write_bytes(b"\x00\xff torn")
    observer = board(layout, clock)
    assert observer.observe("b") is Liveness.UNKNOWN
    clock.now_s += 61
    assert observer.take_over("b") is not None


def test_the_heartbeat_thread_moves_every_held_claim(layout: Layout) -> None:
    mine = board(layout)
    mine.try_claim("a")
    mine.try_claim("b")
    before = [layout.claim(name).read_bytes() for name in "ab"]
    mine.start_heartbeat(0.01)
    for _ in range(500):
        if all(layout.claim(n).read_bytes() != old for n, old in zip("ab", before, strict=True)):
            break
        time.sleep(0.01)
    else:
        pytest.fail("the counters did not move")
    mine.stop_heartbeat()
    assert json.loads(layout.claim("a").read_bytes())["block"] == "a"


def test_a_claim_that_another_worker_looks_into_meanwhile_is_won_all_the_same(
    layout: Layout,
) -> None:
    """Whoever judges a claim takes its name away for a moment."""
    layout.claims.mkdir(parents=True)
    mine, stop = board(layout), threading.Event()

    def look() -> None:
        newest = iter([*map(layout.claim, BLOCKS), layout.claims])
        path, following = next(newest), next(newest)
        while not stop.is_set():
            if following.is_file():
                path, following = following, next(newest)
            aside = path.with_name(f".{path.name}.aside")
            with contextlib.suppress(FileNotFoundError):
                path.rename(aside)
                os.link(aside, path)
                aside.unlink()

    other = threading.Thread(target=look)
    other.start()
    try:
        claims = [mine.try_claim(block) for block in BLOCKS]
    finally:
        stop.set()
        other.join()
    assert all(claim is not None and claim.is_ours() for claim in claims)
    mine.release_all()
