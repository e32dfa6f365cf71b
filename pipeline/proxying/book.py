"""What a proxy writes into a results folder: runs under way to a spool, finished ones to a journal.

A journal holds finished runs, and a conversation ends when nobody goes on with it. Until then each
exchange is one frame in a spool, on disk before the next request. Whoever finds the spool of a
proxy that is gone finishes its runs. A spool is a journal of parts, in a folder of its own, and the
claim beside it says whose it is.
"""

import platform
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from pipeline.host.claim_file import ClaimFile, Watch, create_claim, this_owner
from pipeline.proxying.finished_run import joined
from pipeline.records.frames import FrameKind
from pipeline.records.journal import Journal, new_journal, run_of, scan
from pipeline.records.layout import Layout
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States

STALE_S = 60.0
"""A proxy on another machine whose claim stood still for so long is gone."""

Finish = Callable[[RunRecord], RunRecord]


class Book:
    """The journal and the spool of one proxy. Safe to use from several threads, `tend` aside."""

    def __init__(self, layout: Layout, name: str, finish: Finish) -> None:
        """Open both.

        Args:
            layout: the folder.
            name: of the journal, as far as it is free.
            finish: makes a finished run of all its parts.

        Raises:
            DiskError: they cannot be created.
        """
        self._layout, self._finish = layout, finish
        self._owner = this_owner(name)
        self._watch = Watch(self._owner, stale_s=STALE_S)
        self._journal = new_journal(layout, name)
        self.name = self._journal.name
        self._claim = self._claim_spool(self._spool_path(self.name))
        self._spool = Journal(self._spool_path(self.name))
        self._unfinished: set[str] = set()

    def add_part(self, part: RunRecord) -> None:
        """Put a part of a run on disk. Raises `DiskError`; nothing of it was written then."""
        self._unfinished.add(part.run_id)
        self._spool.append_run(self._named(part))

    def add_run(self, run: RunRecord) -> RunRecord:
        """Finish a run of which all parts are in `run`; return it. Raises `DiskError`."""
        record = self._finish(self._named(run))
        self._journal.append_run(record)
        self._unfinished.discard(run.run_id)
        return record

    def tend(self) -> list[RunRecord]:
        """Say that this proxy lives, finish the runs of those that do not, and return these."""
        if self._claim is not None:
            self._claim.beat()
        spools = self._layout.spool.glob("*.journal") if self._layout.spool.is_dir() else ()
        left = [path for path in sorted(spools) if path.stem != self.name]
        return [run for path in left for run in self._take_over(path)]

    def close(self) -> None:
        """Close both; a spool with runs that could not be written is left to the next proxy."""
        self._spool.close()
        self._journal.close()
        if not self._unfinished:
            self._spool.path.unlink(missing_ok=True)
            # Never before the spool: the journal keeps the name that both have.
            if self._journal.path.stat().st_size == 0:
                self._journal.path.unlink()
        if self._claim is not None:
            self._claim.give_back()

    def _take_over(self, spool: Path) -> Iterable[RunRecord]:
        claim_path = spool.with_suffix(".claim")
        if claim_path.exists() and not self._watch.remove_stale(claim_path):
            return
        claim = self._claim_spool(spool)
        if claim is None:
            return
        try:
            known = States(self._layout).refresh()
            parts = (run_of(f) for f in scan(spool).frames if f.kind == FrameKind.RUN)
            for run_id, run in joined(parts).items():
                if run_id not in known:
                    note = "its proxy was killed: the last answers may be missing"
                    notes = [*run.extra.get("notes", ()), note]
                    yield self.add_run(replace(run, extra={**run.extra, "notes": notes}))
            spool.unlink()
        finally:
            claim.give_back()

    def _claim_spool(self, spool: Path) -> ClaimFile | None:
        path = spool.with_suffix(".claim")
        descriptor = create_claim(path, self._owner)
        return None if descriptor is None else ClaimFile(path, descriptor)

    def _spool_path(self, name: str) -> Path:
        return self._layout.spool / f"{name}.journal"

    def _named(self, record: RunRecord) -> RunRecord:
        return replace(record, worker=self.name, node=platform.node())
