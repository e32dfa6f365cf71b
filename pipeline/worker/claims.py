"""Who works on which block, decided by files on the shared file system and nothing else.

A block's claim is a `host.claim_file`: of any number of workers on any number of nodes exactly one
wins, and a dead one's claim is taken over. Two owners at once are possible and harmless, since
results are decided by records and not by claims. Does not know what a block holds, nor what is done
with it; the journals say what is finished.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.host.claim_file import ClaimFile, Liveness, Owner, Watch, create_claim
from pipeline.host.files import create_exclusive, sync_folder
from pipeline.records.layout import Layout


class Claim(ClaimFile):
    """A block's claim that this process won."""

    def __init__(self, block_id: str, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self.block_id = block_id


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
        self._watch = Watch(owner, stale_s=stale_s, now_s=now_s)
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
        descriptor = create_claim(path, self._owner, block=block_id)
        if descriptor is None:
            return None
        claim = Claim(block_id, path, descriptor)
        with self._lock:
            self._held[block_id] = claim
        return claim

    def observe(self, block_id: str) -> Liveness:
        """Look at the block's claim once more and return what is known of it by now."""
        return self._watch.observe(self._layout.claim(block_id))

    def take_over(self, block_id: str) -> Claim | None:
        """Return the block's claim if it was stale and this call won it, else None."""
        if not self._watch.remove_stale(self._layout.claim(block_id)):
            return None
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
        claim.give_back()
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
