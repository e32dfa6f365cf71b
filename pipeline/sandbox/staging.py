"""Staging images: many of them to verified SIF files, once, where there is network.

Owns the work of `stage images`: a few at a time, tried again where a registry asks for patience,
and taken up where an earlier call ended. What counts as staged is the record that
`pipeline.sandbox.images` reads. One image's file is `pipeline.sandbox.fetching`'s.
"""

import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from pipeline.plural import plural
from pipeline.sandbox.fetching import Fetcher, FetchOptions
from pipeline.sandbox.images import ImageStore
from pipeline.sandbox.origin import Origin

_FINAL = re.compile(
    r"manifest.unknown|name.unknown|status code 404|unauthorized|denied|no space left",
    re.IGNORECASE,
)
"""Complaints that the same words get again, however long one waits."""
_Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingOptions:
    """How hard to work."""

    jobs: int = 4
    """Images at a time."""
    pause_s: float = 0.0
    """Between the starts of two downloads."""
    tries: int = 5
    patience_s: tuple[float, float] = (60.0, 180.0)
    """How long to wait, at random between these, after a refusal."""
    fetch: FetchOptions = field(default_factory=FetchOptions)


@dataclass(kw_only=True, slots=True)
class StagingReport:
    """What came of it."""

    staged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The complaint, by image."""


def stage_images(
    store: ImageStore,
    references: Sequence[str],
    origin: Origin,
    *,
    options: StagingOptions,
    tell: _Tell,
    rng: random.Random,
) -> StagingReport:
    """Stage what is missing of `references`; a failed image does not stop the others.

    Args:
        store: where to.
        references: full image names.
        origin: where from.
        options: how hard to work.
        tell: takes a line of progress.
        rng: spreads retries, so that many users behind one address do not retry at once.

    Raises:
        SandboxError: there is no container runtime here.
        KeyboardInterrupt: the caller's; downloads are stopped and their files removed first.
    """
    missing = [reference for reference in references if store.find(reference) is None]
    tell(f"{len(references) - len(missing)} of {plural(len(references), 'image')} here already")
    # Where one file serves them all, the others are records only.
    shared = missing[1:] if origin.is_shared else []
    wanted = missing[:1] if origin.is_shared else missing
    stopping = threading.Event()
    fetcher = Fetcher(store, origin, options.fetch, stopping)
    queue = _Queue(fetcher, options, stopping, tell, rng, patient=origin.is_remote)
    try:
        report = queue.run(wanted)
        for reference in shared if not report.failed else []:
            fetcher.share(wanted[0], reference)
            report.staged.append(reference)
    finally:
        fetcher.tidy()
        store.write_manifest()
    return report


class _Queue:
    """One call's images: which are being made, and when the next may start."""

    def __init__(
        self,
        fetcher: Fetcher,
        options: StagingOptions,
        stopping: threading.Event,
        tell: _Tell,
        rng: random.Random,
        *,
        patient: bool,
    ) -> None:
        self._fetcher = fetcher
        self._options = options
        self._stopping = stopping
        self._tell = tell
        self._rng = rng
        self._tries = options.tries if patient else 1
        self._lock = threading.Lock()
        self._next_start = 0.0

    def run(self, references: Sequence[str]) -> StagingReport:
        """Make all of them; an exception in this thread stops those that are being made."""
        report = StagingReport()
        with ThreadPoolExecutor(max(1, self._options.jobs)) as pool:
            waiting = {pool.submit(self._one, reference): reference for reference in references}
            try:
                for n_done, done in enumerate(as_completed(waiting), start=1):
                    reference, complaint = waiting[done], done.result()
                    if complaint:
                        report.failed[reference] = complaint
                    else:
                        report.staged.append(reference)
                    state = complaint.splitlines()[-1] if complaint else "staged"
                    self._tell(f"[{n_done}/{len(references)}] {reference}: {state}")
            except BaseException:
                self._stopping.set()
                pool.shutdown(cancel_futures=True)
                raise
        return report

    def _one(self, reference: str) -> str:
        """Make one image, trying again while that may help; return the last complaint."""
        for tries_left in reversed(range(self._tries)):
            self._await_turn()
            if self._stopping.is_set():
                return "interrupted"
            complaint = self._fetcher.fetch(reference)
            if not complaint or not tries_left or _FINAL.search(complaint):
                return complaint
            wait_s = self._rng.uniform(*self._options.patience_s)
            self._tell(f"{reference}: {complaint.splitlines()[-1]}; again in {wait_s:.0f} s")
            self._stopping.wait(wait_s)
        return "not tried"

    def _await_turn(self) -> None:
        with self._lock:
            now = time.monotonic()
            wait_s = max(0.0, self._next_start - now)
            self._next_start = max(now, self._next_start) + self._options.pause_s
        self._stopping.wait(wait_s)
