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

from pipeline.records.layout import Layout
from pipeline.records.plan import Block, PlannedRun
from pipeline.records.states import States
from pipeline.worker.claims import Claim, ClaimBoard, Liveness

BACKOFF_S = 2.0
"""Before the second attempt at a run; doubled for each further one."""


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
    """The blocks of one model, as one worker works them off. Main thread only."""

    def __init__(
        self,
        layout: Layout,
        blocks: Sequence[Block],
        board: ClaimBoard,
        states: States,
        *,
        max_attempts: int,
        donors: Mapping[str, Sequence[str]] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at what is open; nothing is claimed yet.

        Args:
            layout: the results folder.
            blocks: in plan order.
            board: where blocks are claimed.
            states: what has become of every run.
            max_attempts: infrastructure failures of a run, since this worker began, after which
                it leaves the run to the next launch.
            donors: run id to the runs that must be finished before it may start.
            now_s: monotonic seconds, for waits between attempts.
        """
        self._layout = layout
        self._board = board
        self._states = states
        self._max_attempts = max_attempts
        self._donors = donors or {}
        self._now_s = now_s
        known = states.refresh()
        self._failures_before = {run_id: s.infra_attempts for run_id, s in known.items()}
        self._open = [b for b in blocks if any(states.state_of(r.run_id).to_run for r in b.runs)]
        self._held: dict[str, _Held] = {}
        self._given_up: set[str] = set()
        self.n_published = 0

    # --- handing out ---
    def next(self) -> Assignment | None:
        """Return a run to start now, claiming a block if need be; None where there is none."""
        return self._from_held() or (self._from_held() if self.claim_one() else None)

    def claim_one(self) -> bool:
        """Claim the first block that is to be had; return whether one was.

        Raises:
            OSError: a claim could not be written.
        """
        if self._donors:
            self._refresh()
        if self._claim_free() or self._claim_stale():
            return True
        return self._reopen_damaged() and self._claim_free()

    def finished(self, assignment: Assignment, *, valid: bool) -> None:
        """Note that a run was recorded; publish or give back its block when that was the last."""
        run = assignment.run
        held = self._held[run.block_id]
        held.in_flight.discard(run.run_id)
        if not valid:
            self._after_failure(held, assignment)
        self._settle(held)

    def dropped(self, assignment: Assignment) -> None:
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

    @property
    def n_in_flight(self) -> int:
        """Runs handed out and not yet reported back."""
        return sum(len(held.in_flight) for held in self._held.values())

    def has_open(self) -> bool:
        """Return whether any run is open by now, whoever works on it."""
        self._refresh()
        return bool(self._open)

    def outlook(self) -> Outlook:
        """Return whether it is worth staying although nothing could be handed out."""
        if any(held.waiting for held in self._held.values()):
            return Outlook.MAYBE_LATER
        unclear = (Liveness.UNKNOWN, Liveness.STALE, Liveness.FREE)
        for block in self._candidates():
            if self._is_ready(block) and self._board.observe(block.block_id) in unclear:
                return Outlook.MAYBE_LATER
        return Outlook.NOTHING

    # --- claiming ---
    def _candidates(self) -> list[Block]:
        return [
            block
            for block in self._open
            if block.block_id not in self._held and block.block_id not in self._given_up
        ]

    def _claim_free(self) -> bool:
        names = self._board.names()
        for block in self._candidates():
            taken = {
                self._layout.claim(block.block_id).name,
                self._layout.claim_done(block.block_id).name,
            }
            if taken.isdisjoint(names) and self._is_ready(block):
                claim = self._board.try_claim(block.block_id)
                if claim is not None and self._adopt(block, claim):
                    return True
        return False

    def _claim_stale(self) -> bool:
        names = self._board.names()
        for block in self._candidates():
            if self._layout.claim(block.block_id).name in names and self._is_ready(block):
                claim = self._board.take_over(block.block_id)
                if claim is not None and self._adopt(block, claim):
                    return True
        return False

    def _reopen_damaged(self) -> bool:
        """Remove the marks of blocks that the journals show unfinished; return if there were any.

        A block is marked after its records are on disk, so an open block with a mark has lost
        records: a journal was damaged or taken away.
        """
        names = self._board.names()
        self._refresh()
        lost = [
            block.block_id
            for block in self._candidates()
            if self._layout.claim_done(block.block_id).name in names and self._missing(block)
        ]
        self._board.remove_done(lost)
        return bool(lost)

    def _adopt(self, block: Block, claim: Claim) -> bool:
        """Take what is missing of a block just won; return whether that is anything."""
        self._refresh()
        missing = self._missing(block)
        held = _Held(
            block=block,
            claim=claim,
            waiting=[(0.0, assignment) for assignment in missing],
            failed=any(
                self._states.state_of(run.run_id).to_run and not self._attempts_left(run.run_id)
                for run in block.runs
            ),
        )
        self._held[block.block_id] = held
        self._settle(held)
        return bool(missing)

    def _missing(self, block: Block) -> list[Assignment]:
        return [
            Assignment(run=run, attempt=self._states.state_of(run.run_id).infra_attempts + 1)
            for run in block.runs
            if self._states.state_of(run.run_id).to_run and self._attempts_left(run.run_id)
        ]

    def _attempts_left(self, run_id: str) -> bool:
        before = self._failures_before.get(run_id, 0)
        return self._states.state_of(run_id).infra_attempts - before < self._max_attempts

    def _is_ready(self, block: Block) -> bool:
        """Return whether every donor of the block's runs has a valid record."""
        needed = [d for run in block.runs for d in self._donors.get(run.run_id, ())]
        return not any(self._states.state_of(donor).to_run for donor in needed)

    def _refresh(self) -> None:
        self._states.refresh()
        self._open = [
            block
            for block in self._open
            if any(self._states.state_of(run.run_id).to_run for run in block.runs)
        ]

    # --- held blocks ---
    def _from_held(self) -> Assignment | None:
        now_s = self._now_s()
        for held in self._held.values():
            for position, (not_before_s, assignment) in enumerate(held.waiting):
                if not_before_s <= now_s:
                    del held.waiting[position]
                    held.in_flight.add(assignment.run.run_id)
                    return assignment
        return None

    def _after_failure(self, held: _Held, assignment: Assignment) -> None:
        run = assignment.run
        self._states.refresh()
        if not self._attempts_left(run.run_id):
            held.failed = True
            return
        failures = self._states.state_of(run.run_id).infra_attempts
        here = failures - self._failures_before.get(run.run_id, 0)
        wait_s = BACKOFF_S * 2 ** max(here - 1, 0)
        again = Assignment(run=run, attempt=failures + 1)
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
