"""A claim on the tables: one door compacts at a time, and a dead one is taken over.

The claim is a file that appears complete (a link), holds a heartbeat counter, and is stale when
the counter did not move for a while on the observer's own clock: clocks of nodes differ, and locks
on Lustre do not hold. A holder that was killed on this very machine is known to be dead at once.
Blocks of a sweep are claimed elsewhere.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.host.files import create_exclusive
from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity, this_machine

_COUNTER = b"%020d"


class ClaimError(Exception):
    """The claim is another's. The message says what to do."""


class ClaimHeldError(ClaimError):
    """A live holder kept it for as long as we waited."""


class ClaimLostError(ClaimError):
    """Another process took the claim over: what was being prepared must not be committed."""


@dataclass(slots=True)
class ExclusiveClaim:
    """A claim that this process holds. `beat` keeps it, `check` asserts it."""

    path: Path
    fd: int
    counter: int = 0

    def beat(self) -> None:
        """Show that the holder lives; call it at least every few seconds."""
        self.counter += 1
        os.pwrite(self.fd, _COUNTER % self.counter, 0)

    def check(self) -> None:
        """Make sure that the claim is still ours.

        Raises:
            ClaimLostError: it is not.
        """
        if _inode(self.path) != os.fstat(self.fd).st_ino:
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
    claim = _acquired(path, wait_s, stale_s, poll_s, now_s)
    try:
        yield claim
    finally:
        if _inode(path) == os.fstat(claim.fd).st_ino:
            path.unlink(missing_ok=True)
        os.close(claim.fd)


def _acquired(
    path: Path, wait_s: float, stale_s: float, poll_s: float, now_s: Callable[[], float]
) -> ExclusiveClaim:
    path.parent.mkdir(parents=True, exist_ok=True)
    started = now_s()
    seen, seen_since = None, started
    while True:
        if create_exclusive(path, _COUNTER % 0 + _this_holder()):
            return ExclusiveClaim(path=path, fd=os.open(path, os.O_RDWR | os.O_CLOEXEC))
        looked = _content(path)
        if looked != seen:
            seen, seen_since = looked, now_s()
        if seen is not None and (now_s() - seen_since >= stale_s or _is_dead(seen)):
            _remove_stale(path, seen)
            continue
        if now_s() - started >= wait_s:
            raise ClaimHeldError(
                f"{path} is held by another command that is alive; wait for it to end"
            )
        time.sleep(poll_s)


def _this_holder() -> bytes:
    """Return what follows the counter: who holds, and a nonce that makes the claim unique."""
    identity = process_identity(os.getpid())
    holder = {
        "machine": this_machine(),
        "pid": os.getpid(),
        "start_ticks": identity.start_ticks if identity else None,
        "nonce": secrets.token_hex(8),
    }
    return b" " + json.dumps(holder).encode() + b"\n"


def _is_dead(content: bytes) -> bool:
    """Return whether the holder ran on this machine and is gone."""
    try:
        holder = json.loads(content.partition(b" ")[2])
        if holder["machine"] != this_machine() or holder["start_ticks"] is None:
            return False
        return not is_alive(ProcessIdentity(holder["pid"], holder["start_ticks"]))
    except (ValueError, KeyError, TypeError):
        return False


def _remove_stale(path: Path, stale: bytes) -> None:
    """Move the stale claim away; put it back if it moved or was replaced in between."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.stale")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _content(aside) != stale:
        with suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink()


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
