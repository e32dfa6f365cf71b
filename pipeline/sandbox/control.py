"""The folder through which a sandbox and its owner exchange files.

Commands may write there as well as we do, so any name in it may be a link to a file of ours that
a command wants read or overwritten, or a folder where a file should be. Owns making, reading and
removing files there without following or tripping over either. The folder's own path is ours: it
is mounted into the sandbox, and a mount point cannot be moved from within.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.host.files import remove_tree

_CHUNK_BYTES = 1 << 20


class ControlFolder:
    """A sandbox's control folder, as the host sees it."""

    def __init__(self, path: Path) -> None:
        """Take `path`, which exists."""
        self.path = path

    def put(self, name: str, data: bytes) -> None:
        """Make a new file `name` with `data`, whatever was there.

        Raises:
            OSError: it cannot be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self._clear(name)
        with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]

    def open_fifo(self, name: str, access: int) -> int:
        """Make a new FIFO `name`, whatever was there, and return a descriptor of it.

        Raises:
            OSError: it cannot be made, or something else took its place at once.
        """
        path = self._clear(name)
        os.mkfifo(path, 0o600)
        return _open(path, access, stat.S_ISFIFO)

    def take(self, name: str, *, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the file `name`, and remove it.

        Raises:
            OSError: there is no file of that name, or it is a link or something else.
        """
        try:
            descriptor = _open(self.path / name, os.O_RDONLY, stat.S_ISREG)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                found = bytearray()
                while chunk := file.read(min(_CHUNK_BYTES, limit_bytes - len(found))):
                    found += chunk
            return bytes(found)
        finally:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Remove what is at `name`, if it can be."""
        with suppress(OSError):
            (self.path / name).unlink()

    def _clear(self, name: str) -> Path:
        """Return the path of `name` with nothing there."""
        # A command may have taken our rights to the folder away, but not its ownership.
        self.path.chmod(0o700)
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
        except OSError:
            remove_tree(path)
        return path


def _open(path: Path, access: int, is_kind: Callable[[int], bool]) -> int:
    """Return a descriptor of what is at `path`, if it is of that kind and no link."""
    flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, access | flags)
    if not is_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "a command put something else in its place", str(path))
    return descriptor
