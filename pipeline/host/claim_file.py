"""A claim: one small file that exactly one process on any node can have, and a way on when it dies.

The file is complete at once (temporary file, then hard link), names its owner, and holds a counter
that the owner moves. Whoever sees the counter stand still for long enough on its *own* monotonic
clock may take the claim over: clocks of nodes differ, and locks on Lustre do not hold. An owner
that was killed on this very machine is known to be dead at once. Two owners at once are possible (a
node that hangs and comes back), so what a claim guards must bear that.

A claim is renamed to a name that nobody else knows before it is judged or removed, and put back if
it is not what was expected. What is claimed is not known here.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from pipeline.host.files import open_exclusive
from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity, this_machine

_COUNTER_AT = len('{"counter":"')
_COUNTER_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process, as its claims name it."""

    worker: str
    host: str
    machine: str
    """Boot id and process namespace: where they are equal, process ids can be compared."""
    pid: int
    start_ticks: int
    slurm_job: str | None
    nonce: str


def this_owner(worker: str = "", slurm_job: str | None = None) -> Owner:
    """Return this process as an owner of claims."""
    identity = process_identity(os.getpid())
    return Owner(
        worker=worker,
        host=socket.gethostname(),
        machine=this_machine(),
        pid=os.getpid(),
        start_ticks=identity.start_ticks if identity else 0,
        slurm_job=slurm_job,
        nonce=secrets.token_hex(8),
    )


class Liveness(StrEnum):
    """What an observer knows of a claim."""

    FREE = "free"
    ALIVE = "alive"
    """Ours, or its counter moved while we watched and has not stood still since."""
    UNKNOWN = "unknown"
    """Not watched for long enough."""
    STALE = "stale"
    """Its owner is dead, or its counter stood still for too long."""


class ClaimFile:
    """A claim that this process won.

    The counter is written in place, into the file that was created: if the name has gone to
    another owner, the write cannot reach that owner's file, and it works when the disk is full.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.inode = os.fstat(descriptor).st_ino
        self._counter = 0

    def is_ours(self) -> bool:
        """Return whether the claim's name still leads to our file."""
        try:
            return self.path.stat().st_ino == self.inode
        except FileNotFoundError:
            return False

    def beat(self) -> bool:
        """Count the heartbeat up, if the claim is still ours; return whether it is."""
        # The number of a closed descriptor goes to the next file that is opened: never write to it.
        with self._lock:
            if self._descriptor < 0 or not self.is_ours():
                return False
            self._counter += 1
            digits = f"{self._counter:0{_COUNTER_DIGITS}d}".encode()
            os.pwrite(self._descriptor, digits, _COUNTER_AT)
            os.fsync(self._descriptor)
            return True

    def give_back(self) -> None:
        """Remove the claim, if it is still ours, and forget the file."""
        # Our file is open still, so that no other can have its inode.
        remove_claim(self.path, lambda aside: aside.stat().st_ino == self.inode)
        self.close()

    def close(self) -> None:
        """Forget the file. May be called twice."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


def create_claim(path: Path, owner: Owner, **facts: str) -> int | None:
    """Return the open file of the claim if this call won it, None if someone has it.

    Args:
        path: the claim's name; its folder is made.
        owner: who claims.
        facts: what else the file says.

    Raises:
        OSError: the claim could not be written (no space, for one).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"counter": "0" * _COUNTER_DIGITS, **facts, "owner": asdict(owner)}
    return open_exclusive(path, json.dumps(content, separators=(",", ":")).encode())


def remove_claim(path: Path, is_expected: Callable[[Path], bool]) -> bool:
    """Remove the claim if it is the expected one; return whether it was.

    Args:
        path: the claim's name.
        is_expected: asked about the file once nobody else can find it.
    """
    aside = path.with_name(f".{path.name[:150]}.{secrets.token_hex(8)}.aside")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    expected = is_expected(aside)
    if not expected:
        # The same file gets its name again, unless a new claim has it by now.
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink(missing_ok=True)
    return expected


@dataclass(frozen=True, slots=True)
class _Sight:
    """A claim as it was last seen, and since when it looks like that."""

    content: bytes
    since_s: float
    moved: bool


class Watch:
    """What one process has seen of other processes' claims."""

    def __init__(
        self, owner: Owner, *, stale_s: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._owner = owner
        self._stale_s = stale_s
        self._now_s = now_s
        self._sights: dict[Path, _Sight] = {}

    def observe(self, path: Path) -> Liveness:
        """Look at a claim once more and return what is known of it by now."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            self._sights.pop(path, None)
            return Liveness.FREE
        owner = _owner_in(content)
        if owner is not None and owner.nonce == self._owner.nonce:
            return Liveness.ALIVE
        now_s = self._now_s()
        before = self._sights.get(path)
        if before is None or before.content != content:
            moved = before is not None and _owner_in(before.content) == owner
            self._sights[path] = before = _Sight(content, now_s, moved)
        if self._is_dead(owner) or now_s - before.since_s >= self._stale_s:
            return Liveness.STALE
        # That the owner's process exists says nothing: it may hang. Only its counter tells.
        return Liveness.ALIVE if before.moved else Liveness.UNKNOWN

    def remove_stale(self, path: Path) -> bool:
        """Remove the claim if it is stale and nothing moved since; return whether this call did."""
        if self.observe(path) is not Liveness.STALE:
            return False
        seen = self._sights[path].content
        if not remove_claim(path, lambda aside: aside.read_bytes() == seen):
            return False
        self._sights.pop(path, None)
        return True

    def _is_dead(self, owner: Owner | None) -> bool:
        """True where the owner ran on this very machine and is gone."""
        return (
            owner is not None
            and owner.machine == self._owner.machine
            and not is_alive(ProcessIdentity(owner.pid, owner.start_ticks))
        )


def _owner_in(content: bytes) -> Owner | None:
    """Return the owner that a claim names, None where the file is no claim of ours."""
    try:
        return Owner(**json.loads(content)["owner"])
    except (ValueError, KeyError, TypeError):
        return None
