"""A worker's journal: one append a finished run, grade or batch of samples, and reading it back.

Every append is one write and one fsync, so a killed worker leaves at most a torn tail, which
readers ignore. When the disk is full nothing stays half written. A journal has one writer ever:
it is created exclusively, under a name of its own. Frames are `frames`' business, which record
wins is `election`'s.
"""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipeline.host.files import sync_folder
from pipeline.records.failure import DiskError
from pipeline.records.frames import Damage, Frame, FrameKind, frame_in, frames_in, packed_frame
from pipeline.records.grade_record import GradeRecord, ServerSample, grade_row
from pipeline.records.layout import Layout
from pipeline.records.rows import run_row
from pipeline.records.run_record import RunRecord

RUN_JSON: TypeAdapter[RunRecord] = TypeAdapter(RunRecord)
_GRADE: TypeAdapter[GradeRecord] = TypeAdapter(GradeRecord)
_SAMPLES: TypeAdapter[tuple[ServerSample, ...]] = TypeAdapter(tuple[ServerSample, ...])

_DISK_ERRNOS = {
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file size limit is reached",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reports an error",
    errno.ESTALE: "the mount went stale",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
}


class Journal:
    """An open journal. Appending is safe from several threads of the one process that made it."""

    def __init__(self, path: Path) -> None:
        """Create the journal file.

        Raises:
            FileExistsError: another writer has this name.
            DiskError: the file cannot be created.
        """
        self.path = path
        self._lock = threading.Lock()
        with disk_errors(f"creating {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            sync_folder(path.parent)
        self._size = 0

    @property
    def name(self) -> str:
        """The name by which tables refer to this journal."""
        return self.path.stem

    def append_run(self, record: RunRecord) -> None:
        """Add a finished run; it is on disk when this returns.

        Raises:
            DiskError: it could not be written, and nothing of it was.
        """
        self._append(FrameKind.RUN, run_head(record), json_of(RUN_JSON, record))

    def append_grade(self, record: GradeRecord) -> None:
        """Add a grade. Raises as `append_run`."""
        self._append(FrameKind.GRADE, grade_head(record), json_of(_GRADE, record))

    def append_samples(self, samples: Sequence[ServerSample]) -> None:
        """Add a batch of server samples. Raises as `append_run`."""
        if samples:
            head = {"worker": samples[0].worker, "n": len(samples)}
            self._append(FrameKind.SERVER, head, json_of(_SAMPLES, tuple(samples)))

    def _append(self, kind: FrameKind, head: dict[str, Any], body: bytes) -> None:
        frame = packed_frame(kind, head, body)
        with self._lock, disk_errors(f"appending to {self.path}"):
            try:
                _write_all(self._fd, frame, self._size)
                os.fsync(self._fd)
            except OSError:
                # If this fails too, the next append still starts here, and readers skip the rest.
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise
            self._size += len(frame)

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_journal(layout: Layout, worker: str) -> Journal:
    """Return a journal of a name that no one has: `worker`, or `worker.1`, `worker.2`, ...

    Raises:
        DiskError: the file cannot be created.
    """
    for number in count():
        try:
            return Journal(layout.journal(f"{worker}.{number}" if number else worker))
        except FileExistsError:
            continue
    raise AssertionError("unreachable: count() does not end")


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found in (the rest of) a journal."""

    frames: tuple[Frame, ...]
    damages: tuple[Damage, ...]
    """Corrupt stretches with good frames after them. They cost the frames that lay there."""
    good_end: int
    """Where to go on reading: the end of the last good frame."""
    tail_bytes: int
    """What follows: a frame being written now, or the torn one of a killed worker."""


def scan(path: Path, start: int = 0) -> Scan:
    """Return the good frames of a journal from the offset `start` on.

    Raises:
        FileNotFoundError: there is no such journal.
    """
    size = path.stat().st_size
    found = list(frames_in(path, start))
    frames = tuple(f for f in found if isinstance(f, Frame))
    good_end = frames[-1].end if frames else start
    return Scan(
        frames=frames,
        damages=tuple(d for d in found if isinstance(d, Damage)),
        good_end=good_end,
        # A frame that came in between is read next time as well.
        tail_bytes=max(size - good_end, 0),
    )


def frame_at(path: Path, offset: int) -> Frame:
    """Return the frame at `offset`, as `RunState` names it.

    Raises:
        FileNotFoundError: there is no such journal.
        ValueError: no good frame begins there.
    """
    with path.open("rb") as file:
        frame = frame_in(file, path, offset, os.fstat(file.fileno()).st_size)
    if frame is None:
        raise ValueError(f"{path} has no good frame at {offset}")
    return frame


def run_of(frame: Frame) -> RunRecord:
    """Return the run that a frame of kind RUN holds."""
    return RUN_JSON.validate_json(frame.body())


def grade_of(frame: Frame) -> GradeRecord:
    """Return the grade that a frame of kind GRADE holds."""
    return _GRADE.validate_json(frame.body())


def samples_of(frame: Frame) -> tuple[ServerSample, ...]:
    """Return the samples that a frame of kind SERVER holds."""
    return _SAMPLES.validate_json(frame.body())


RUN_HEAD = (
    *("run_id", "attempt", "failure_class", "finished_at", "patch_sha256", "limit_patch_sha256"),
    *("input_tokens", "output_tokens", "n_steps", "wall_s", "started_at", "evidence"),
    *("n_format_errors", "n_calls_as_text"),
)


def run_head(record: RunRecord) -> dict[str, Any]:
    """Return what is read of a run without unpacking it: enough for its state and for progress."""
    row = run_row(record)
    return {name: row[name] for name in RUN_HEAD}


GRADE_HEAD = ("run_id", "attempt", "grade_class", "resolved", "patch_sha256", "finished_at")


def grade_head(record: GradeRecord) -> dict[str, Any]:
    """Return what is read of a grade without unpacking it."""
    row = grade_row(record)
    return {**{name: row[name] for name in GRADE_HEAD}, "patch_kind": record.patch_kind}


def json_of(adapter: TypeAdapter[Any], record: object) -> bytes:
    r"""Return a record as JSON.

    A model may write half a surrogate pair, which no UTF-8 file can hold. It becomes its escape
    (`\ud83d`), to be seen; patches lose nothing (`records.patch`).
    """
    try:
        return adapter.dump_json(record, exclude_defaults=True)
    except ValueError:
        plain = adapter.dump_python(record, exclude_defaults=True, mode="json")
        return adapter.dump_json(adapter.validate_python(_encodable(plain)), exclude_defaults=True)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn the errors of a full or broken disk into `DiskError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRNOS:
            raise
        raise DiskError(
            f"{doing}: {_DISK_ERRNOS[error.errno]}. Make room or move the folder, then run the "
            "command again: all that was finished is kept, and nothing is left half written"
        ) from error


def _write_all(fd: int, data: bytes, offset: int) -> None:
    """Write `data` at `offset`; a short write goes on, a failed one raises."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        offset += written
        view = view[written:]
