"""Which run is next: blocks claimed one after another, their runs handed out as slots free.

Owns the worker's view of the plan: what is claimable, what it holds, what has failed too often
here. A block's runs start in plan order; the next block is claimed when none of the held ones has
a run left. What is finished is asked of the journals, through `records.states`; how a claim works
is `pipeline.worker.claims`; whether there is time is asked by the caller.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.host.claim_file import Liveness
from pipeline.records.plan import Block, PlannedRun
from pipeline.worker.claims import Claim, ClaimBoard
from pipeline.worker.ledgers import Ledger, Work

BACKOFF_S = 2.0
"""Before the second attempt at a run; doubled for each further one."""
LOOK_OVER_S = 10.0
"""How long a worker that finds work goes without a look over the whole plan, which costs some
milliseconds where there are thousands of blocks. A block that others have closed meanwhile is
passed over by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """A run to start now."""

    run: PlannedRun
    attempt: int
    """From 1, over all launches."""


class Outlook(StrEnum):
    """What a worker without anything to do can hope for."""

    NOTHING = "nothing"
    """Every open block is done, held by a live worker, or has failed too often here."""
    MAYBE_LATER = "maybe_later"
    """A claim may turn out to be stale, or a failed run waits for its next attempt."""


@dataclass(slots=True)
class _Held:
    """A claimed block and what of it is still to come."""

    block: Block
    claim: Claim
    waiting: list[tuple[float, Assignment]]
    """Not to be started before that time; in plan order."""
    in_flight: set[str] = field(default_factory=set)
    failed: bool = False
    """A run of it is given up here."""


class BlockQueue:
    """The blocks that one worker may work off. Main thread only."""

    def __init__(
        self,
        blocks: Sequence[Block],
        board: ClaimBoard,
        ledger: Ledger,
        *,
        max_attempts: int,
        donors: Mapping[str, Sequence[str]] | None = None,
        begins_with: Mapping[str, str] | None = None,
        prefix: str = "",
        hopeless: Callable[[str], bool] = lambda _: False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at what is open; nothing is claimed yet.

        Args:
            blocks: in plan order.
            board: where blocks are claimed.
            ledger: what is to be done about every run.
            max_attempts: failures of a run, since this worker began, after which it leaves the
                run to the next launch.
            donors: run id to the runs that must be closed before it may start.
            begins_with: run id to the run that it forks from. One of its own block it starts after;
                one of another block is a donor.
            prefix: of the claims' names, so that two kinds of work on a block do not collide.
            hopeless: whether a run cannot be finished here, by its id; it is left to others.
            now_s: monotonic seconds, for waits between attempts.
        """
        self._board = board
        self._ledger = ledger
        self._max_attempts = max_attempts
        self._begins_with = begins_with or {}
        block_of = {run.run_id: block.block_id for block in blocks for run in block.runs}
        self._donors = {run_id: list(needed) for run_id, needed in (donors or {}).items()}
        for run_id, source in self._begins_with.items():
            if block_of.get(run_id) != block_of.get(source):
                self._donors.setdefault(run_id, []).append(source)
        self._prefix = prefix
        self._hopeless = hopeless
        self._now_s = now_s
        ledger.refresh()
        self._blocks = list(blocks)
        self._open = list(filter(self._is_open, blocks))
        self._failures_before = {
            r.run_id: ledger.failures(r.run_id) for b in blocks for r in b.runs
        }
        self._held: dict[str, _Held] = {}
        self._given_up: set[str] = set()
        self._look_over_due_s = now_s() + LOOK_OVER_S
        self.n_published = 0

    # --- handing out ---
    def from_held(self) -> Assignment | None:
        """Return a run of a claimed block to start now, None where there is none."""
        now_s = self._now_s()
        for held in list(self._held.values()):
            self._forget_closed(held)
            for position, (not_before_s, assignment) in enumerate(held.waiting):
                if not_before_s <= now_s and not self._is_early(held, assignment.run.run_id):
                    del held.waiting[position]
                    held.in_flight.add(assignment.run.run_id)
                    return assignment
        return None

    def _is_early(self, held: _Held, run_id: str) -> bool:
        """Return whether the run that this one forks from is still to end here."""
        source = self._begins_with.get(run_id)
        return source is not None and (
            source in held.in_flight or any(a.run.run_id == source for _, a in held.waiting)
        )

    def claim_one(self) -> bool:
        """Claim the first block that is to be had; return whether one was.

        Raises:
            OSError: a claim could not be written.
        """
        if self._donors or self._now_s() >= self._look_over_due_s:
            self._refresh()
        if self._claim_free() or self._claim_stale():
            return True
        return self._reopen_damaged() and self._claim_free()

    def finish(self, assignment: Assignment, *, valid: bool) -> None:
        """Note that a run was recorded; publish or give back its block when that was the last."""
        run = assignment.run
        held = self._held[run.block_id]
        held.in_flight.discard(run.run_id)
        if not valid:
            self._after_failure(held, assignment)
        self._settle(held)

    def drop(self, assignment: Assignment) -> None:
        """Note that a run was given up unrecorded, because the worker stops."""
        held = self._held[assignment.run.block_id]
        held.in_flight.discard(assignment.run.run_id)
        held.failed = True
        held.waiting.clear()
        self._settle(held)

    def give_back_waiting(self) -> None:
        """Release what has not been started: the worker is about to stop."""
        for held in list(self._held.values()):
            held.failed = held.failed or bool(held.waiting)
            held.waiting.clear()
            self._settle(held)

    def has_open(self) -> bool:
        """Return whether any run is open by now, whoever works on it."""
        self._refresh()
        return bool(self._open)

    def outlook(self) -> Outlook:
        """Return whether it is worth staying although nothing could be handed out."""
        if any(held.waiting for held in self._held.values()):
            return Outlook.MAYBE_LATER
        unclear = (Liveness.UNKNOWN, Liveness.STALE, Liveness.FREE)
        return (
            Outlook.MAYBE_LATER
            if any(self._board.observe(self._claim_id(b)) in unclear for b in self._candidates())
            else Outlook.NOTHING
        )

    # --- claiming ---
    def _claim_id(self, block: Block) -> str:
        return self._prefix + block.block_id

    def _candidates(self) -> list[Block]:
        """Return the open blocks that this worker may go for, in plan order."""
        return [
            block
            for block in self._open
            if block.block_id not in self._held
            and block.block_id not in self._given_up
            and self._is_ready(block)
        ]

    def _claim_free(self) -> bool:
        claimed, done = self._board.claimed(), self._board.done()
        for block in self._candidates():
            name = self._claim_id(block)
            if name not in claimed and name not in done:
                claim = self._board.try_claim(name)
                if claim is not None and self._adopt(block, claim):
                    return True
        return False

    def _claim_stale(self) -> bool:
        claimed = self._board.claimed()
        for block in self._candidates():
            if self._claim_id(block) in claimed:
                claim = self._board.take_over(self._claim_id(block))
                if claim is not None and self._adopt(block, claim):
                    return True
        return False

    def _reopen_damaged(self) -> bool:
        """Remove the marks of blocks that the journals show unfinished; return if there were any.

        A block is marked after its records are on disk, so an open block with a mark has lost
        records: a journal was damaged or taken away.
        """
        done = self._board.done()
        self._refresh()
        lost = [
            self._claim_id(block)
            for block in self._candidates()
            if self._claim_id(block) in done and self._missing(block)
        ]
        self._board.remove_done(lost)
        return bool(lost)

    def _adopt(self, block: Block, claim: Claim) -> bool:
        """Take what is missing of a block just won; return whether that is anything."""
        self._ledger.refresh()
        missing = self._missing(block)
        to_do = {assignment.run.run_id for assignment in missing}
        held = _Held(
            block=block,
            claim=claim,
            waiting=[(0.0, assignment) for assignment in missing],
            failed=any(
                self._ledger.work_on(run.run_id) is not Work.CLOSED and run.run_id not in to_do
                for run in block.runs
            ),
        )
        self._held[block.block_id] = held
        self._settle(held)
        return bool(missing)

    def _missing(self, block: Block) -> list[Assignment]:
        return [
            Assignment(run=run, attempt=self._ledger.failures(run.run_id) + 1)
            for run in block.runs
            if self._ledger.work_on(run.run_id) is Work.OPEN
            and self._failures_here(run.run_id) < self._max_attempts
            and not self._hopeless(run.run_id)
        ]

    def _failures_here(self, run_id: str) -> int:
        """Return the failures of a run since this worker began, those of others included."""
        return self._ledger.failures(run_id) - self._failures_before[run_id]

    def _is_open(self, block: Block) -> bool:
        return any(
            self._ledger.work_on(run.run_id) is Work.OPEN and not self._hopeless(run.run_id)
            for run in block.runs
        )

    def _is_ready(self, block: Block) -> bool:
        """Return whether every donor of the block's runs is done with."""
        needed = (donor for run in block.runs for donor in self._donors.get(run.run_id, ()))
        return all(self._ledger.work_on(donor) is Work.CLOSED for donor in needed)

    def _refresh(self) -> None:
        self._ledger.refresh()
        self._open = list(filter(self._is_open, self._blocks))
        self._look_over_due_s = self._now_s() + LOOK_OVER_S

    # --- held blocks ---
    def _forget_closed(self, held: _Held) -> None:
        """Let go of runs that a worker which took this one for dead has finished meanwhile."""
        is_closed = [self._ledger.work_on(a.run.run_id) is Work.CLOSED for _, a in held.waiting]
        if any(is_closed):
            held.waiting = [
                w for w, closed in zip(held.waiting, is_closed, strict=True) if not closed
            ]
            self._settle(held)

    def _after_failure(self, held: _Held, assignment: Assignment) -> None:
        run = assignment.run
        self._ledger.refresh()
        here = self._failures_here(run.run_id)
        if here >= self._max_attempts:
            held.failed = True
            return
        again = Assignment(run=run, attempt=self._ledger.failures(run.run_id) + 1)
        wait_s = BACKOFF_S * 2 ** max(here - 1, 0)
        held.waiting.append((self._now_s() + wait_s, again))

    def _settle(self, held: _Held) -> None:
        """Publish or release a block of which nothing is left to do here."""
        if held.waiting or held.in_flight:
            return
        del self._held[held.block.block_id]
        if held.failed:
            self._given_up.add(held.block.block_id)
            self._board.release(held.claim)
        else:
            # The mark is a convenience: the records are on disk, and whoever finds the claim of a
            # worker that is gone sees in them that the block is done.
            with contextlib.suppress(OSError):
                self._board.publish(held.claim)
            self.n_published += 1
