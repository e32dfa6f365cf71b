"""The loop that every worker runs in its main thread: hand out, wait, account, stop.

Owns when something new is started, what ends the loop, and giving up what is in flight. Rollout
and grading workers differ in what they do with an assignment and in what they keep running beside
it; both are passed in. Nothing here knows a server, a sandbox or a journal.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipeline.host.log import say
from pipeline.records.failure import DiskError, InfraError, NodeError
from pipeline.worker.blocks import Assignment, BlockQueue, Outlook
from pipeline.worker.deadline import Deadline
from pipeline.worker.reporting import Counts, StatusFile
from pipeline.worker.slots import Finished, Slots
from pipeline.worker.stopping import Stop, StopWatch

Written = TypeVar("Written")

POLL_S = 0.25
LINGER_POLL_S = 1.0
ABORT_RESERVE_S = 30.0
"""Left before the job's end for publishing and teardown when work has to be given up."""
ABORT_GRACE_S = 3.0
"""For work in flight to notice that it is to stop, before its sandboxes are closed."""
DISK_PATIENCE_S = 900.0
"""How long a result waits in memory for a full disk."""
DISK_RETRY_S = 2.0
HOURS_USED = "nothing more started: the sweep's max_gpu_hours are used; launch with a higher cap"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the main thread needs to know of an assignment that a slot has seen to its end."""

    ending: str | None = None
    """The class that was recorded. None: it was given up, as if it had never started."""
    failed: bool = False
    """Our side failed; it is to be done again."""
    wall_s: float | None = None
    error: InfraError | None = None
    """Why it could not be recorded."""


class WorkLoop:
    """One worker's loop. Main thread only, but for `should_stop` and `patiently`."""

    def __init__(
        self,
        queue: BlockQueue,
        deadline: Deadline,
        stop: StopWatch,
        status: StatusFile,
        *,
        concurrency: int,
        work: Callable[[Assignment], Recorded],
        has_room: Callable[[], bool] = lambda: True,
        cut_short: Callable[[Mapping[str, float]], None] = lambda _: None,
    ) -> None:
        """Prepare the loop.

        Args:
            queue: what is next.
            deadline: whether there is time for it.
            stop: reasons to start nothing more.
            status: the worker's status file.
            concurrency: how much is in flight at most.
            work: runs in threads of its own, and records what it did.
            has_room: False while what all of it shares (a server) can take no more.
            cut_short: told what is given up because the job ends, by run id: the seconds it had.
        """
        self.counts = Counts()
        self.stopped_by: Stop | None = None
        self.n_recorded = 0
        """Valid results that this attempt put on disk."""
        self._queue, self._deadline, self._stop, self._status = queue, deadline, stop, status
        self._has_room = has_room
        self._slots: Slots[Assignment, Recorded] = Slots(concurrency, work)
        self._in_flight: dict[str, Assignment] = {}
        self._began_s: dict[str, float] = {}
        self._cut_short = cut_short
        self._aborting = False
        self._fatal: InfraError | None = None
        self._claim_due_s = 0.0
        self._unclaimable_since_s: float | None = None
        stop.wake = self._slots.inbox

    def should_stop(self) -> bool:
        """Return whether work in flight is to be given up. Any thread."""
        return self._aborting or self._stop.terminated

    def found_work(self) -> bool:
        """Claim a first block, waiting for claims whose owners may be gone; return if one was.

        Raises:
            DiskError: no claim could be written for a long time.
        """
        while self._stopping() is None and self._deadline.may_start():
            if self._claim():
                return True
            if self._queue.outlook() is Outlook.NOTHING:
                return False
            self._status.report("waiting for a claim", self.counts, ())
            self._slots.wait(LINGER_POLL_S)
        if self._fatal is not None:
            raise self._fatal
        if self.stopped_by is Stop.GPU_HOURS:
            say(HOURS_USED)
        elif not self._deadline.may_start():
            say(
                f"nothing started: {self._deadline.room_s:.0f} s are left for it, and one is "
                f"expected to take {self._deadline.run_s:.0f} s; give the job more time"
            )
        return False

    def run(self, tend: Callable[[], None], pull_plug: Callable[[], None]) -> None:
        """Work until there is no more to do here, or a reason to stop.

        Args:
            tend: called often while work goes on; may mend what has broken.
            pull_plug: makes work in flight fail at once.

        Raises:
            InfraError: something broke that could not be mended; what was in flight is given up.
        """
        while True:
            reason = self._stopping()
            if reason is None:
                self._tend(tend)
                self._fill()
            else:
                self._queue.give_back_waiting()
            if self._slots.n_busy == 0 and (reason is not None or self._is_done()):
                break
            if self._must_abort(reason):
                self._abort(pull_plug)
                break
            phase = "working" if reason is None else f"stopping: {reason}"
            self._status.report(phase, self.counts, list(self._in_flight))
            self._take(self._slots.wait(POLL_S if self._slots.n_busy else LINGER_POLL_S))
        if self._fatal is not None:
            raise self._fatal
        if self.stopped_by is Stop.GPU_HOURS:
            say(HOURS_USED)
        if self.stopped_by is None and not self._deadline.may_start():
            # The last run ended too late for another one: the warning need not be waited for.
            self.stopped_by = Stop.TIME_LIMIT

    def patiently(self, write: Callable[[], Written]) -> Written:
        """Return what `write` returns, once the disk takes it.

        Any thread. A slot waits here with its result in memory, while its claim stays alive.

        Raises:
            DiskError: the disk did not take it in time.
        """
        give_up_s = time.monotonic() + DISK_PATIENCE_S
        while True:
            try:
                return write()
            except DiskError as error:
                if time.monotonic() > give_up_s or self.should_stop():
                    raise
                say(str(error))
                time.sleep(DISK_RETRY_S)

    # --- parts ---
    def _claim(self) -> bool:
        """Claim a block if one is to be had; a folder is listed at most once a second."""
        now_s = time.monotonic()
        if now_s < self._claim_due_s:
            return False
        try:
            claimed = self._queue.claim_one()
        except OSError as error:
            # No space for a claim, for a while perhaps. What is held goes on.
            claimed = False
            self._note_unclaimable(error, now_s)
        else:
            self._unclaimable_since_s = None
        self._claim_due_s = 0.0 if claimed else now_s + LINGER_POLL_S
        return claimed

    def _note_unclaimable(self, error: OSError, now_s: float) -> None:
        if self._unclaimable_since_s is None:
            self._unclaimable_since_s = now_s
            say(f"cannot claim, trying again for {DISK_PATIENCE_S:.0f} s: {error}")
        elif now_s - self._unclaimable_since_s > DISK_PATIENCE_S:
            self._fatal = DiskError(f"no claim could be written: {error}")

    def _fill(self) -> None:
        """Hand work to free slots while there is time for more.

        Without anything in flight one is started whatever the server says: nothing of ours could
        ever make room.
        """
        while (
            self._slots.has_free
            and self._deadline.may_start()
            and (self._slots.n_busy == 0 or self._has_room())
        ):
            assignment = self._queue.from_held()
            if assignment is None and self._claim():
                assignment = self._queue.from_held()
            if assignment is None:
                return
            self._in_flight[assignment.run.run_id] = assignment
            self._began_s[assignment.run.run_id] = time.monotonic()
            self._slots.start(assignment)

    def _is_done(self) -> bool:
        """Return whether an idle worker has nothing to wait for."""
        return not self._deadline.may_start() or self._queue.outlook() is Outlook.NOTHING

    def _stopping(self) -> Stop | None:
        if self._fatal is not None:
            return Stop.TERMINATED
        self.stopped_by = self._stop.reason() or self.stopped_by
        if self.stopped_by is Stop.TIME_LIMIT and math.isinf(self._deadline.left_s):
            # Nobody could say when the job ends, but the signal is sent so long before.
            self._deadline.end_unix_s = self._deadline.now_unix_s() + self._deadline.margin_s
        return self.stopped_by

    def _must_abort(self, reason: Stop | None) -> bool:
        abrupt = reason is not None and reason.is_abrupt
        return abrupt or self._deadline.must_abort(ABORT_RESERVE_S)

    def _tend(self, tend: Callable[[], None]) -> None:
        try:
            tend()
        except InfraError as error:
            self._fatal = error

    def _abort(self, pull_plug: Callable[[], None]) -> None:
        """Give up what is in flight; what finishes within the grace still counts."""
        self._aborting = True
        self._drain(ABORT_GRACE_S)
        if self._in_flight and self._deadline.must_abort(ABORT_RESERVE_S):
            now_s = time.monotonic()
            self._cut_short({run_id: now_s - self._began_s[run_id] for run_id in self._in_flight})
        pull_plug()
        self._drain(ABORT_GRACE_S)
        for assignment in list(self._in_flight.values()):
            self._queue.drop(assignment)

    def _drain(self, at_most_s: float) -> None:
        deadline_s = time.monotonic() + at_most_s
        while self._slots.n_busy and time.monotonic() < deadline_s:
            self._take(self._slots.wait(POLL_S))

    def _take(self, event: Finished[Assignment, Recorded] | None) -> None:
        """Account for what a slot has finished."""
        if event is None:
            return
        assignment = event.item
        del self._in_flight[assignment.run.run_id]
        recorded = event.result or Recorded(error=NodeError("a slot died; its log says of what"))
        if recorded.ending is None:
            self._fatal = recorded.error or self._fatal
            self._queue.drop(assignment)
            return
        self.counts.note(recorded.ending, failed=recorded.failed)
        if not recorded.failed:
            self.n_recorded += 1
            if recorded.wall_s is not None:
                self._deadline.wall_s.append(recorded.wall_s)
        self._queue.finish(assignment, valid=not recorded.failed)
        self._claim_due_s = 0.0
