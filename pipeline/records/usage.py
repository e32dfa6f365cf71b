"""How long each worker attempt has had its GPUs, by its own clock: what a sweep has used so far.

Every attempt keeps one small file, replaced while it lives, and left behind: their sum is what all
launches together have used, also where Slurm keeps no accounts. A worker that is killed loses the
seconds since its last report.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.host.files import read_json, replace_bytes
from pipeline.records.layout import Layout

REPORT_EVERY_S = 20.0
LIVE_S = 90.0
"""A worker whose file is older than this is gone or stuck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """One worker attempt."""

    worker: str
    gpus: int
    seconds: float
    ended: bool
    age_s: float = 0.0
    """Since the file was written."""

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours, busy or not: what a site charges."""
        return self.gpus * self.seconds / 3600

    @property
    def is_live(self) -> bool:
        """Whether it still has its GPUs, as far as one can tell."""
        return not self.ended and self.age_s < LIVE_S


def usage_of(layout: Layout, ended: dict[str, Usage] | None = None) -> list[Usage]:
    """Return what every worker attempt of the folder has used; what cannot be read is left out.

    Args:
        layout: the results folder.
        ended: kept between calls by who asks often: attempts that have ended are not read again.
    """
    known = {} if ended is None else ended
    found = []
    for path in sorted(layout.usage.glob("*.json")):
        if path.name in known:
            found.append(known[path.name])
            continue
        with contextlib.suppress(OSError, TypeError, ValueError):
            age_s = max(0.0, time.time() - path.stat().st_mtime)
            usage = Usage(**{**read_json(path), "age_s": age_s})
            found.append(usage)
            if usage.ended:
                known[path.name] = usage
    return found


def used_gpu_hours(layout: Layout) -> float:
    """Return the GPU-hours of all launches so far."""
    return sum(usage.gpu_hours for usage in usage_of(layout))


def gpus_of_job(env: Mapping[str, str]) -> int:
    """Return how many GPUs this process was given, as Slurm or the driver's variable says."""
    given = env.get("SLURM_GPUS_ON_NODE", "")
    if given.isdecimal():
        return int(given)
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    return len([device for device in visible.split(",") if device.strip()])


@contextlib.contextmanager
def meter_usage(layout: Layout, worker: str, gpus: int) -> Iterator[None]:
    """Keep the worker's file while the block runs, from a thread; nothing is kept without GPUs."""
    if gpus == 0:
        yield
        return
    path, began_s, over = layout.usage_file(worker), time.monotonic(), threading.Event()

    def report(*, ended: bool) -> None:
        usage = Usage(worker=worker, gpus=gpus, seconds=time.monotonic() - began_s, ended=ended)
        # Accounts are not worth a run: a full disk is no obstacle.
        with contextlib.suppress(OSError):
            _write(path, usage)

    def keep_reporting() -> None:
        while True:
            report(ended=False)
            if over.wait(REPORT_EVERY_S):
                return

    thread = threading.Thread(target=keep_reporting, name="usage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        report(ended=True)


def _write(path: Path, usage: Usage) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in asdict(usage).items() if name != "age_s"}
    replace_bytes(path, json.dumps(kept).encode())
