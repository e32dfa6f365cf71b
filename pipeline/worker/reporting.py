"""A worker's status file: what it is doing, for `status` and for a launcher that waits.

Replaced atomically every few seconds and removed when the worker ends, or by the next worker on the
same machine if it was killed. A worker that ended because of something it could not mend leaves its
reason there, until the next worker in its place. A status that cannot be written (no space) is not
worth a run, so it is skipped. It decides nothing but one thing: local
launchers look here for workers of an earlier launch that still live.
"""

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.host.claim_file import Owner
from pipeline.host.files import read_json, replace_bytes
from pipeline.host.proctable import ProcessIdentity, is_alive
from pipeline.host.slurm_job import SlurmJob
from pipeline.records.failure import InfraError
from pipeline.records.layout import Layout
from pipeline.serving.finding import ServerUnfitError

REPORT_EVERY_S = 2.0
RATE_WINDOW_S = 60.0

_ATTEMPT = re.compile(r"-(pid\d+|[\d_]+-r\d+)$")
"""What a worker's name has beside its place: the process, or the job and its restart."""


@dataclass(kw_only=True)
class Counts:
    """What a worker has done so far."""

    finished: int = 0
    infra_failed: int = 0
    tokens: int = 0
    by_class: dict[str, int] = field(default_factory=dict)

    def note(self, name: str, *, failed: bool) -> None:
        """Count one result under its class."""
        self.by_class[name] = self.by_class.get(name, 0) + 1
        self.finished += not failed
        self.infra_failed += failed


def remove_dead(layout: Layout, machine: str) -> None:
    """Remove the status files of workers on this very machine that were killed."""
    for path in layout.status.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            status = read_json(path)
            identity = ProcessIdentity(status["pid"], status["start_ticks"])
            killed = status["machine"] == machine and not is_alive(identity)
            if killed and "stopped" not in status:
                path.unlink(missing_ok=True)


def _remove_left(layout: Layout, place: str) -> None:
    """Remove the reasons that earlier workers left in this worker's place of the array."""
    for path in layout.status.glob("*.json"):
        if _ATTEMPT.sub("", path.stem) == place:
            with contextlib.suppress(OSError, ValueError):
                if "stopped" in read_json(path):
                    path.unlink(missing_ok=True)


class StatusFile:
    """The status file of one worker attempt."""

    def __init__(
        self,
        layout: Layout,
        owner: Owner,
        *,
        role: Literal["rollout", "grading"],
        model: str,
        job: SlurmJob | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the file; only what killed workers left behind is removed."""
        remove_dead(layout, owner.machine)
        self._path = layout.status_of(owner.worker)
        self._left = False
        _remove_left(layout, _ATTEMPT.sub("", owner.worker))
        self._now_s = now_s
        self._fixed: dict[str, Any] = {
            "worker": owner.worker,
            "role": role,
            "model": model,
            "kind": "slurm" if job else "local",
            "host": owner.host,
            "machine": owner.machine,
            "pid": owner.pid,
            "start_ticks": owner.start_ticks,
            "slurm_job": job.job_id if job else None,
            "started_at": time.time(),
        }
        self._beat = 0
        self._phase = ""
        self._due_s = 0.0
        self._history: deque[tuple[float, int, int]] = deque()

    def report(self, phase: str, counts: Counts, in_flight: Sequence[str]) -> None:
        """Write the file if it is due or the phase is new; a full disk is no obstacle."""
        now_s = self._now_s()
        if now_s < self._due_s and phase == self._phase:
            return
        self._phase = phase
        self._due_s = now_s + REPORT_EVERY_S
        self._beat += 1
        runs_per_s, tokens_per_s = self._rates(now_s, counts)
        status = {
            **self._fixed,
            "phase": phase,
            "heartbeat": self._beat,
            "updated_at": time.time(),
            "finished": counts.finished,
            "infra_failed": counts.infra_failed,
            "by_class": counts.by_class,
            "tokens": counts.tokens,
            "runs_per_s": runs_per_s,
            "tokens_per_s": tokens_per_s,
            "in_flight": list(in_flight),
        }
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(self._path, json.dumps(status).encode())

    def leave(self, error: InfraError, counts: Counts) -> None:
        """Leave why this worker ended, for people and for a launcher; `remove` lets it stand."""
        self._left = True
        status = {
            **self._fixed,
            "stopped": str(error),
            # A launcher does not start workers again on a server that is not the right one.
            "unfit": isinstance(error, ServerUnfitError),
            "updated_at": time.time(),
            "finished": counts.finished,
        }
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(self._path, json.dumps(status).encode())

    def remove(self) -> None:
        """Remove the file: this worker is gone. May be called twice."""
        if self._left:
            return
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _rates(self, now_s: float, counts: Counts) -> tuple[float | None, float | None]:
        """Return runs and tokens per second over the last minute, None before there is a span."""
        self._history.append((now_s, counts.finished, counts.tokens))
        while now_s - self._history[0][0] > RATE_WINDOW_S:
            self._history.popleft()
        then_s, finished, tokens = self._history[0]
        if now_s <= then_s:
            return None, None
        span_s = now_s - then_s
        return (counts.finished - finished) / span_s, (counts.tokens - tokens) / span_s
