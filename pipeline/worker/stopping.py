"""Why a worker stops: signals, a drain request, a launcher that is gone.

Owns the process's signal handlers, which only note what came and wake the worker's loop: nothing
is decided inside a handler. docs/methods.md, Which record counts, says what each reason leads to.
Submitit's own handlers ignore SIGTERM, so these are installed before anything else is done.
"""

import os
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pipeline.host.process import hear_interrupts
from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity, process_stat


class Stop(StrEnum):
    """A reason to start nothing new."""

    TERMINATED = "terminated"
    """SIGTERM or SIGINT: publish and exit, now. Slurm itself requeues what it preempts."""
    TIME_LIMIT = "time_limit"
    """USR2, sent by us before the time limit: finish what can be finished, then requeue."""
    DRAIN = "drain"
    """Someone asked: finish what is in flight."""
    ORPHANED = "orphaned"
    """The launcher on this machine is gone: finish what is in flight."""
    GPU_HOURS = "gpu_hours"
    """The sweep's `max_gpu_hours` are used: finish what is in flight."""

    @property
    def is_abrupt(self) -> bool:
        """True where runs in flight are given up."""
        return self is Stop.TERMINATED


class StopWatch:
    """Collects the reasons to stop. The most urgent one that has come counts."""

    def __init__(
        self,
        drain_request: Path,
        *,
        launcher: ProcessIdentity | None = None,
        budget: Callable[[], bool] = lambda: False,
        wake: "SimpleQueue[Any] | None" = None,
    ) -> None:
        """Watch for a drain file and, where given, for the end of the launcher.

        Args:
            drain_request: the file that asks for a drain.
            launcher: the process whose end orphans a local worker.
            budget: whether the hours that the sweep may use are used up.
            wake: gets a None with every signal (its `put` may be called in a handler).
        """
        self._drain_request = drain_request
        self._launcher = launcher
        self.budget = budget
        self.wake = wake
        """Where the worker's loop waits."""
        self._terminated = False
        self._time_limit = False

    def install(self) -> Callable[[], None]:
        """Take over SIGTERM, SIGINT, SIGUSR2 and SIGCONT; return what restores the old handlers.

        Main thread only.
        """
        hear_interrupts()
        handlers = {
            signal.SIGTERM: self._on_terminate,
            signal.SIGINT: self._on_terminate,
            signal.SIGUSR2: self._on_time_limit,
            signal.SIGCONT: _ignore,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # Whoever started us may have been deaf to some of them, and we inherit that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

        return restore

    def reason(self) -> Stop | None:
        """Return why to stop, None while there is no reason."""
        if self._terminated:
            return Stop.TERMINATED
        if self._time_limit:
            return Stop.TIME_LIMIT
        if self._drain_request.exists():
            return Stop.DRAIN
        if self._launcher is not None and not is_alive(self._launcher):
            return Stop.ORPHANED
        return Stop.GPU_HOURS if self.budget() else None

    @property
    def terminated(self) -> bool:
        """Whether runs in flight are to be given up; cheap enough to ask before every step."""
        return self._terminated

    def _on_terminate(self, *_: object) -> None:
        self._terminated = True
        self._wake_up()

    def _on_time_limit(self, *_: object) -> None:
        self._time_limit = True
        self._wake_up()

    def _wake_up(self) -> None:
        if self.wake is not None:
            self.wake.put(None)


def _ignore(*_: object) -> None:
    """Go on: Slurm sends SIGCONT along with SIGTERM."""


def launcher_of(env: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the launcher of a local worker: the parent of submitit's controller, our parent.

    None for a worker that was started otherwise, by hand or by Slurm.
    """
    if env.get("SUBMITIT_EXECUTOR") != "local":
        return None
    controller = process_stat(os.getppid())
    return None if controller is None else process_identity(controller.ppid)
