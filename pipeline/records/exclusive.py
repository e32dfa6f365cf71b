"""A claim on the whole folder: one command compacts or submits at a time, a dead one is succeeded.

How a claim is made and judged is `host.claim_file`. Blocks of a sweep are claimed by workers
(`worker.claims`), which never wait for one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.host.claim_file import ClaimFile, Watch, create_claim, this_owner


class ClaimError(Exception):
    """The claim is another's. The message says what to do."""


class ClaimHeldError(ClaimError):
    """A live holder kept it for as long as we waited."""


class ClaimLostError(ClaimError):
    """Another process took the claim over: what was being prepared must not be committed."""


_BEAT_EVERY_S = 1.0
"""Beats that follow each other sooner are not written: each is one sync of the file."""


class ExclusiveClaim(ClaimFile):
    """A claim that this process holds. `beat` keeps it; call it at least every few seconds."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._next_beat_s = 0.0

    def beat(self) -> bool:
        """Count the heartbeat up where it is due; return whether the claim is known to be ours."""
        if time.monotonic() < self._next_beat_s:
            return True
        self._next_beat_s = time.monotonic() + _BEAT_EVERY_S
        return super().beat()

    def check(self) -> None:
        """Make sure that the claim is still ours.

        Raises:
            ClaimLostError: it is not.
        """
        if not self.is_ours():
            raise ClaimLostError(f"{self.path} was taken over; run the command again")


@contextmanager
def exclusive_claim(
    path: Path,
    *,
    wait_s: float = 600.0,
    stale_s: float = 60.0,
    poll_s: float = 0.1,
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[ExclusiveClaim]:
    """Hold the claim at `path` while the block runs.

    Args:
        path: The claim file; its folder is made.
        wait_s: How long to wait for a live holder.
        stale_s: A holder whose counter stands still for so long is dead.
        poll_s: Pause between looks.
        now_s: A monotonic clock, seconds.

    Raises:
        ClaimHeldError: a live holder kept it.
    """
    owner = this_owner()
    watch = Watch(owner, stale_s=stale_s, now_s=now_s)
    started = now_s()
    while (descriptor := create_claim(path, owner)) is None:
        if watch.remove_stale(path):
            continue
        if now_s() - started >= wait_s:
            raise ClaimHeldError(
                f"{path} is held by another command that is alive; wait for it to end"
            )
        time.sleep(poll_s)
    claim = ExclusiveClaim(path, descriptor)
    try:
        yield claim
    finally:
        claim.give_back()
