"""Who works on which block, decided by files on the shared file system and nothing else.

A claim is one small file, complete at once (temporary file, then hard link), so that of any number
of workers on any number of nodes exactly one wins. Its owner counts up a heartbeat in it. Whoever
sees a counter stand still for `stale_s` on its *own* monotonic clock may take the claim over:
clocks of different nodes are never compared. Two owners at once are possible (a node that hangs
and comes back) and harmless, since results are decided by records and not by claims.

Names go through a grave: a claim is renamed to a name of its own before it is judged or removed,
and put back if it is not what was expected. Does not know what a block holds, nor what is done
with it; the journals say what is finished.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from pipeline.host.files import create_exclusive, open_exclusive, sync_folder
from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity, this_machine
from pipeline.records.layout import Layout

_COUNTER_AT = len('{"counter":"')
_COUNTER_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A worker attempt, as its claims name it."""

    worker: str
    host: str
    machine: str
    """Boot id and process namespace: where they are equal, process ids can be compared."""
    pid: int
    start_ticks: int
    slurm_job: str | None
    nonce: str


def this_owner(worker: str, slurm_job: str | None = None) -> Owner:
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
    """What an observer knows of a block's claim."""

    FREE = "free"
    ALIVE = "alive"
    """Ours, or its counter moved while we watched and has not stood still since."""
    UNKNOWN = "unknown"
    """Not watched for long enough."""
    STALE = "stale"
    """Its owner is dead, or its counter stood still for too long."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """A claim as it was last seen, and since when it looks like that."""

    content: bytes
    since_s: float
    moved: bool


class Claim:
    """A claim that this process won.

    The counter is written in place, into the file that was created: if the name has gone to
    another owner, the write cannot reach that owner's file, and it works when the disk is full.
    """

    def __init__(self, block_id: str, path: Path, descriptor: int) -> None:
        self.block_id = block_id
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

    def close(self) -> None:
        """Forget the file. May be called twice."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Names:
    """The blocks whose file of one kind was in a listing."""

    path_of: Callable[[str], Path]
    listing: frozenset[str]

    def __contains__(self, block_id: str) -> bool:
        return self.path_of(block_id).name in self.listing


class ClaimBoard:
    """The claims of a results folder, as one worker attempt sees and makes them.

    Safe for several threads.
    """

    def __init__(
        self,
        layout: Layout,
        owner: Owner,
        *,
        stale_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout = layout
        self._owner = owner
        self._stale_s = stale_s
        self._now_s = now_s
        self._sights: dict[str, _Sight] = {}
        self._held: dict[str, Claim] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    def claimed(self) -> "_Names":
        """Return which blocks have a claim, from one listing of the folder."""
        return _Names(self._layout.claim, self._listing())

    def done(self) -> "_Names":
        """Return which blocks are marked as done, from one listing of the folder."""
        return _Names(self._layout.claim_done, self._listing())

    def _listing(self) -> frozenset[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._layout.claims) as entries:
            return frozenset(entry.name for entry in entries)
        return frozenset()

    def held(self) -> list[str]:
        """Return the blocks whose claims this process won and has not given back."""
        with self._lock:
            return list(self._held)

    def try_claim(self, block_id: str) -> Claim | None:
        """Return the block's claim if this call won it, None if someone has it.

        Raises:
            OSError: the claim could not be written (no space, for one).
        """
        path = self._layout.claim(block_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "counter": "0" * _COUNTER_DIGITS,
            "block": block_id,
            "owner": asdict(self._owner),
        }
        descriptor = open_exclusive(path, json.dumps(content, separators=(",", ":")).encode())
        if descriptor is None:
            return None
        claim = Claim(block_id, path, descriptor)
        with self._lock:
            self._held[block_id] = claim
        return claim

    def observe(self, block_id: str) -> Liveness:
        """Look at the block's claim once more and return what is known of it by now."""
        path = self._layout.claim(block_id)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            self._sights.pop(block_id, None)
            return Liveness.FREE
        owner = _owner_in(content)
        if owner is not None and owner.nonce == self._owner.nonce:
            return Liveness.ALIVE
        now_s = self._now_s()
        before = self._sights.get(block_id)
        if before is None or before.content != content:
            moved = before is not None and _owner_in(before.content) == owner
            self._sights[block_id] = before = _Sight(content, now_s, moved)
        if self._is_dead(owner) or now_s - before.since_s >= self._stale_s:
            return Liveness.STALE
        # That the owner's process exists says nothing: it may hang. Only its counter tells.
        return Liveness.ALIVE if before.moved else Liveness.UNKNOWN

    def take_over(self, block_id: str) -> Claim | None:
        """Return the block's claim if it was stale and this call won it, else None."""
        if self.observe(block_id) is not Liveness.STALE:
            return None
        seen = self._sights[block_id].content
        grave = self._bury(block_id)
        if grave is None:
            return None
        if grave.read_bytes() != seen:
            self._put_back(grave, block_id)
            return None
        grave.unlink(missing_ok=True)
        self._sights.pop(block_id, None)
        return self.try_claim(block_id)

    def publish(self, claim: Claim) -> None:
        """Mark the block as done; every run of it must be on disk already."""
        done = self._layout.claim_done(claim.block_id)
        if claim.is_ours():
            claim.path.replace(done)
            sync_folder(done.parent)
        else:
            # Someone took the block over. It is done all the same; their claim is theirs.
            create_exclusive(done, json.dumps({"owner": asdict(self._owner)}).encode())
        self._forget(claim)

    def release(self, claim: Claim) -> None:
        """Give the block back, half done or untouched, for anyone to claim."""
        grave = self._bury(claim.block_id)
        if grave is not None:
            # Our file is open still, so that no other can have its inode.
            if grave.stat().st_ino == claim.inode:
                grave.unlink(missing_ok=True)
            else:
                self._put_back(grave, claim.block_id)
        self._forget(claim)

    def release_all(self) -> None:
        """Give back whatever this process still holds."""
        with self._lock:
            claims = list(self._held.values())
        for claim in claims:
            self.release(claim)

    def remove_done(self, block_ids: Iterable[str]) -> None:
        """Remove the marks of blocks that the journals show to be unfinished after all."""
        for block_id in block_ids:
            self._layout.claim_done(block_id).unlink(missing_ok=True)

    # --- the heartbeat ---
    def start_heartbeat(self, every_s: float) -> None:
        """Keep the counters of all held claims moving, from a thread of its own."""
        self._heart = threading.Thread(
            target=self._beat_until_stopped, args=(every_s,), name="heartbeat", daemon=True
        )
        self._heart.start()

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. May be called twice."""
        self._stop.set()
        if self._heart is not None:
            self._heart.join(timeout=10)

    def beat(self) -> list[str]:
        """Count every held claim up once and return the blocks that we have lost."""
        with self._lock:
            claims = list(self._held.values())
        return [claim.block_id for claim in claims if not claim.beat()]

    def _beat_until_stopped(self, every_s: float) -> None:
        while not self._stop.wait(every_s):
            # A file system that fails for a while must not end the heartbeat for good.
            with contextlib.suppress(OSError):
                self.beat()

    # --- parts ---
    def _forget(self, claim: Claim) -> None:
        with self._lock:
            self._held.pop(claim.block_id, None)
            claim.close()

    def _is_dead(self, owner: Owner | None) -> bool:
        """True where the owner ran on this very machine and is gone."""
        return (
            owner is not None
            and owner.machine == self._owner.machine
            and not is_alive(ProcessIdentity(owner.pid, owner.start_ticks))
        )

    def _bury(self, block_id: str) -> Path | None:
        """Rename the block's claim to a name that nobody else knows; None if it is gone."""
        path = self._layout.claim(block_id)
        grave = path.with_name(f".{path.name[:150]}.{secrets.token_hex(8)}.grave")
        try:
            path.rename(grave)
        except FileNotFoundError:
            return None
        return grave

    def _put_back(self, grave: Path, block_id: str) -> None:
        """Give a claim its name again, the same file, unless a new claim has it by now."""
        with contextlib.suppress(FileExistsError):
            os.link(grave, self._layout.claim(block_id))
        grave.unlink(missing_ok=True)


def _owner_in(content: bytes) -> Owner | None:
    """Return the owner that a claim names, None where the file is no claim of ours."""
    try:
        return Owner(**json.loads(content)["owner"])
    except (ValueError, KeyError, TypeError):
        return None
