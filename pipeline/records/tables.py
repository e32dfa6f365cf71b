"""Compaction: journals become Parquet tables.

Under one claim, and so that a crash at any moment leaves the old tables or the new ones: parts
first, then the tables that are one file, and `runs` last, whose metadata names what the journals
held. Journals that have not grown since are not opened. Which record wins is `election`'s rule.
"""

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from pipeline.host.files import replace_bytes
from pipeline.records.columns import TABLES
from pipeline.records.election import (
    Candidate,
    Elected,
    Place,
    lost_row,
    why_lost,
    winning_grade,
    winning_run,
)
from pipeline.records.exclusive import ExclusiveClaim, exclusive_claim
from pipeline.records.frames import Damage, Frame, FrameKind
from pipeline.records.grade_record import grade_row, server_row
from pipeline.records.journal import disk_errors, grade_of, run_of, samples_of, scan
from pipeline.records.layout import Layout
from pipeline.records.lock import REBUILD, damaged_files_named
from pipeline.records.part_file import ZSTD_LEVEL, PartFile
from pipeline.records.rows import Row, call_rows, message_rows, plan_event_rows, run_row
from pipeline.records.run_record import RunRecord
from pipeline.records.schema import check_version, table_of

T = TypeVar("T")

_JOURNALS_KEY = b"planprune.journals"
"""In the metadata of `runs`: JSON, how many bytes of each journal the tables were made from."""
_PARTS_KEY = b"planprune.parts"
"""Beside it: the bytes of each journal's parts, so that one that was lost or cut is noticed."""

_GRADE_TABLES = {"submitted": "grades", "limit": "limit_grades"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionReport:
    """What a compaction found. Runs and grades are counted as they now stand in the tables."""

    n_runs: int
    n_grades: int
    n_superseded: int
    journals_read: int
    journals_unchanged: int
    damages: Mapping[str, tuple[Damage, ...]]
    """Corrupt stretches of journals, whose records are lost and will be run again."""
    torn: Mapping[str, int]
    """Bytes after the last good frame: being written, or left by a killed worker."""


def compact(layout: Layout) -> CompactionReport:
    """Bring the tables up to date with the journals.

    Raises:
        ClaimError: another live compaction kept the claim, or took this one for dead.
        DiskError: the tables cannot be written; the old ones stand.
        ValueError: a record or a table is of a newer version.
    """
    with (
        disk_errors(f"writing the tables of {layout.root}"),
        exclusive_claim(layout.compaction_claim) as claim,
    ):
        return _Compaction(layout, claim).run()


@dataclass(frozen=True, slots=True)
class _Journal:
    """A journal that has grown since it was last compacted: its records by their heads."""

    path: Path
    heads: Mapping[int, tuple[int, Mapping[str, Any]]]
    """By offset: frame kind and head. Bodies are read again when they are needed."""

    @property
    def name(self) -> str:
        return self.path.stem

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that were there when the heads were read."""
        yield from (f for f in scan(self.path).frames if f.offset in self.heads)


class _Compaction:
    """One compaction under way."""

    def __init__(self, layout: Layout, claim: ExclusiveClaim) -> None:
        self._layout = layout
        self._claim = claim
        self._sizes: dict[str, int] = {}
        self._damages: dict[str, tuple[Damage, ...]] = {}
        self._torn: dict[str, int] = {}
        self._old = {name: _old_rows(layout, name) for name in _ONE_FILE}
        self._tools = {row["tools_sha256"]: row for row in self._old["tools"]}
        self._parts: dict[str, dict[str, int]] = self._manifest(_PARTS_KEY)
        """Bytes of the parts that each journal brought, by table."""

    def run(self) -> CompactionReport:
        changed = list(self._changed(self._manifest(_JOURNALS_KEY)))
        if not changed and self._layout.table_file("runs").exists():
            return self._report(0)
        runs = self._elected_runs(changed)
        grades = {kind: self._elected_grades(kind, changed, runs.winners) for kind in _GRADE_TABLES}
        rows: dict[Place, Row] = {}
        for journal in (*changed, *self._left(changed, runs)):
            rows |= self._write_parts(journal, runs, grades)
        self._write_single(changed, runs, grades, rows)
        return self._report(len(changed))

    # --- reading ---
    def _manifest(self, key: bytes) -> dict[str, Any]:
        """Return what the last compaction noted in `runs`; nothing once a table has gone."""
        files = [self._layout.table_file(name) for name in _ONE_FILE]
        if not all(path.exists() for path in files):
            return {}
        metadata = pq.read_schema(self._layout.table_file("runs")).metadata or {}
        return dict(json.loads(metadata.get(key, b"{}")))

    def _has_parts(self, journal: str) -> bool:
        """Return whether the parts of a journal are as they were written."""
        for name, n_bytes in self._parts.get(journal, {}).items():
            path = self._layout.table_part(name, journal)
            if not path.exists() or path.stat().st_size != n_bytes:
                return False
        return True

    def _changed(self, compacted: Mapping[str, int]) -> Iterable[_Journal]:
        for path in self._layout.journal_paths():
            name = path.stem
            self._sizes[name] = size = path.stat().st_size
            if compacted.get(name) == size and self._has_parts(name):
                continue
            found = scan(path)
            # What was scanned, not what stat said: the journal may have grown in between.
            self._sizes[name] = found.good_end + found.tail_bytes
            if found.damages:
                self._damages[name] = found.damages
            if found.tail_bytes:
                self._torn[name] = found.tail_bytes
            self._claim.beat()
            yield _Journal(path, {f.offset: (f.kind, f.head) for f in found.frames})

    def _left(self, changed: Iterable[_Journal], runs: Elected) -> Iterator[_Journal]:
        """Yield the unchanged journals whose parts hold a failure that is now superseded."""
        names = {c.journal for c, _ in runs.lost if c.in_tables} - {j.name for j in changed}
        for path in map(self._layout.journal, sorted(names)):
            if path.exists():
                yield _Journal(path, {f.offset: (f.kind, f.head) for f in scan(path).frames})

    def _candidates(
        self,
        table: str,
        changed: Iterable[_Journal],
        wanted: Callable[[int, Mapping[str, Any]], bool],
    ) -> dict[str, list[Candidate]]:
        """Return what there is to choose from: the rows of the old table, and new frames."""
        groups: dict[str, list[Candidate]] = {}
        for row in self._old[table]:
            candidate = Candidate(
                head=row, journal=row["journal"], offset=row["journal_offset"], in_tables=True
            )
            groups.setdefault(row["run_id"], []).append(candidate)
        known = {c.place for group in groups.values() for c in group}
        for journal in changed:
            for offset, (kind, head) in journal.heads.items():
                if wanted(kind, head) and (journal.name, offset) not in known:
                    candidate = Candidate(head=head, journal=journal.name, offset=offset)
                    groups.setdefault(head["run_id"], []).append(candidate)
        return groups

    # --- choosing ---
    def _elected_runs(self, changed: Iterable[_Journal]) -> Elected:
        elected = Elected()
        groups = self._candidates("runs", changed, lambda k, _: k == FrameKind.RUN)
        for run_id, group in groups.items():
            winner = winning_run(group)
            elected.winners[run_id] = winner
            elected.lost += [
                (c, "duplicate" if c.is_valid_run else "infra_retried")
                for c in group
                if c is not winner
            ]
        return elected

    def _elected_grades(
        self, kind: str, changed: Iterable[_Journal], runs: Mapping[str, Candidate]
    ) -> Elected:
        elected = Elected()
        hash_name = "patch_sha256" if kind == "submitted" else "limit_patch_sha256"
        groups = self._candidates(
            _GRADE_TABLES[kind],
            changed,
            lambda k, head: k == FrameKind.GRADE and head["patch_kind"] == kind,
        )
        for run_id, group in groups.items():
            run = runs.get(run_id)
            patch = run.head[hash_name] if run else None
            winner = winning_grade(group, patch)
            elected.winners[run_id] = winner
            elected.lost += [(c, why_lost(c, patch)) for c in group if c is not winner]
        return elected

    # --- writing ---
    def _write_parts(
        self, journal: _Journal, runs: Elected, grades: Mapping[str, Elected]
    ) -> dict[Place, Row]:
        """Write the parts of one journal; return the rows of `runs` and grades found on the way."""
        rows: dict[Place, Row] = {}
        with contextlib.ExitStack() as stack:
            parts = {
                name: stack.enter_context(
                    PartFile(TABLES[name], self._layout.table_part(name, journal.name))
                )
                for name in (*_PART_ROWS, "server")
            }
            for frame in journal.frames():
                rows |= self._taken(frame, journal.name, runs, grades, parts)
                self._claim.beat()
            # The journal was damaged after these runs came into the tables: keep what is here.
            kept = [
                run_id
                for run_id, w in runs.winners.items()
                if w.in_tables and w.journal == journal.name and w.offset not in journal.heads
            ]
            self._claim.check()
            for name, part in parts.items():
                if name in _PART_ROWS:
                    part.add_kept(kept)
                if (n_bytes := part.finish()) is not None:
                    self._parts.setdefault(journal.name, {})[name] = n_bytes
        return rows

    def _taken(
        self,
        frame: Frame,
        journal: str,
        runs: Elected,
        grades: Mapping[str, Elected],
        parts: Mapping[str, PartFile],
    ) -> dict[Place, Row]:
        """Add a frame's rows to the parts; return its row of `runs` or grades, if it counts."""
        place = (journal, frame.offset)
        if frame.kind == FrameKind.RUN and runs.is_winner(frame.head["run_id"], place):
            record = _decoded(run_of, frame, journal)
            self._tools |= {
                sha: {"tools_sha256": sha, "tools": text} for sha, text in record.tools.items()
            }
            for name, rows_of in _PART_ROWS.items():
                parts[name].add(rows_of(record))
            return {place: run_row(record, journal=journal, offset=frame.offset)}
        if frame.kind == FrameKind.GRADE and any(
            elected.is_winner(frame.head["run_id"], place) for elected in grades.values()
        ):
            grade = _decoded(grade_of, frame, journal)
            return {place: grade_row(grade, journal=journal, offset=frame.offset)}
        if frame.kind == FrameKind.SERVER:
            parts["server"].add(map(server_row, _decoded(samples_of, frame, journal)))
        return {}

    def _write_single(
        self,
        changed: Iterable[_Journal],
        runs: Elected,
        grades: Mapping[str, Elected],
        rows: Mapping[Place, Row],
    ) -> None:
        lost = {c.place: lost_row("run", c, why) for c, why in runs.lost}
        for kind, elected in grades.items():
            record = "grade" if kind == "submitted" else "limit_grade"
            lost |= {c.place: lost_row(record, c, why) for c, why in elected.lost}
            self._replace(_GRADE_TABLES[kind], elected.rows(rows))
        again = {journal.name for journal in changed}
        old = [r for r in self._old["superseded"] if r["journal"] not in again]
        lost = {(r["journal"], r["journal_offset"]): r for r in old} | lost
        self._replace("superseded", list(lost.values()))
        self._replace("tools", list(self._tools.values()), order="tools_sha256")
        self._claim.check()
        manifest = {
            _JOURNALS_KEY: json.dumps(self._sizes).encode(),
            _PARTS_KEY: json.dumps(self._parts).encode(),
        }
        self._replace("runs", runs.rows(rows), metadata=manifest)

    def _replace(
        self,
        name: str,
        rows: list[Row],
        *,
        order: str = "run_id",
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> None:
        table = table_of(TABLES[name], sorted(rows, key=lambda r: r[order] or ""))
        merged = {**(table.schema.metadata or {}), **(metadata or {})}
        _write(self._layout.table_file(name), table.replace_schema_metadata(merged))
        self._old[name] = rows
        self._claim.beat()

    def _report(self, journals_read: int) -> CompactionReport:
        return CompactionReport(
            n_runs=len(self._old["runs"]),
            n_grades=len(self._old["grades"]),
            n_superseded=len(self._old["superseded"]),
            journals_read=journals_read,
            journals_unchanged=len(self._sizes) - journals_read,
            damages=self._damages,
            torn=self._torn,
        )


_ONE_FILE = ("runs", "grades", "limit_grades", "superseded", "tools")

_PART_ROWS: dict[str, Callable[[RunRecord], Iterable[Row]]] = {
    "calls": call_rows,
    "messages": message_rows,
    "plan_events": plan_event_rows,
}


def _decoded(decode: Callable[[Frame], T], frame: Frame, journal: str) -> T:
    try:
        return decode(frame)
    except ValidationError as error:
        raise ValueError(
            f"journal {journal}, offset {frame.offset}: the record is sound but not one this "
            f"planprune can read; use the version that wrote it (sweep.lock.yaml). {error}"
        ) from error


def _old_rows(layout: Layout, name: str) -> list[Row]:
    path = layout.table_file(name)
    if not path.exists():
        return []
    with damaged_files_named(path, REBUILD):
        table = pq.read_table(path)
    check_version(table.schema, str(path))
    return list(table.to_pylist())


def _write(path: Path, table: pa.Table) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=ZSTD_LEVEL)
    data = buffer.getvalue()
    replace_bytes(path, data)
    return len(data)
