"""What tests printed while patches were graded: one archive a worker, in logs/.

A file for every grade would use up a cluster's file quota, so a grading worker appends to one
tar archive of its own, each member compressed by itself. A killed worker leaves a readable archive
without its last member. Grades are in the journal; losing a log loses no result.
"""

import gzip
import io
import tarfile
import threading
from pathlib import Path
from types import TracebackType
from typing import BinaryIO


class GradeLogs:
    """An open archive. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open the archive `path`, which is this worker's alone.

        Raises:
            OSError: it cannot be created.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file: BinaryIO = path.open("wb")

    def add(self, name: str, text: str, *, now_s: float) -> None:
        """Append `text`, compressed, as the member `name`.

        Raises:
            OSError: it could not be written; what is in the archive stays readable.
        """
        data = gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)
        member = tarfile.TarInfo(name)
        member.size, member.mtime = len(data), int(now_s)
        block = io.BytesIO()
        block.write(member.tobuf(tarfile.PAX_FORMAT))
        block.write(data)
        block.write(b"\0" * (-len(data) % tarfile.BLOCKSIZE))
        with self._lock:
            start = self._file.tell()
            try:
                self._file.write(block.getvalue())
                self._file.flush()
            except OSError:
                self._file.seek(start)
                self._file.truncate()
                raise

    def __enter__(self) -> "GradeLogs":
        """Return the open archive."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the archive with the blocks that mark its end."""
        with self._lock, self._file:
            self._file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
