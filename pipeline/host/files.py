"""Files that are whole or absent.

Owns the few ways in which anything durable is written: replace, create once, append. Every one
of them survives a crash at any instruction, on local disks and on Lustre, where locks are not to
be trusted. Knows nothing of what is in a file; errors stay `OSError` and `is_disk_full` tells
callers which of them mean a full, read-only or over-quota disk.
"""

import errno
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

_REMOVALS = 20
"""Times that a folder is removed again where someone else removes it at the same moment."""


def is_disk_full(error: OSError) -> bool:
    """Return whether `error` means no space, no quota, or a read-only file system."""
    return error.errno in _DISK_ERRNOS


def replace_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path`; a reader meets the old content or the new, never a part.

    Raises:
        OSError: the write failed; `path` is as it was and no temporary file is left.
    """
    temporary = _write_temporary(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class Replacement:
    """A file that is written piece by piece and takes the place of `path` once it is whole."""

    def __init__(self, path: Path) -> None:
        """Open a file beside `path`, under a name nobody else draws.

        Raises:
            OSError: it cannot be created.
        """
        self._path = path
        self._temporary = _temporary_name(path)
        self.file: BinaryIO = self._temporary.open("xb")

    def commit(self) -> int:
        """Put the file in its place, synced, and return its size.

        Raises:
            OSError: the write failed; `path` is as it was and no temporary file is left.
        """
        try:
            with self.file:
                self.file.flush()
                os.fsync(self.file.fileno())
                size: int = self.file.tell()
            self._temporary.replace(self._path)
        except OSError:
            self.discard()
            raise
        sync_folder(self._path.parent)
        return size

    def discard(self) -> None:
        """Leave `path` as it was, unless the file is in its place already."""
        with suppress(OSError):
            self.file.close()
        self._temporary.unlink(missing_ok=True)


def create_exclusive(path: Path, data: bytes) -> bool:
    """Create `path` with `data` unless it exists; return whether this call created it.

    The file appears complete, so whoever loses the race can read the winner's content at once.
    Among any number of callers on any number of nodes exactly one gets True.

    Raises:
        OSError: the write failed for another reason than that `path` exists.
    """
    descriptor = open_exclusive(path, data)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def open_exclusive(path: Path, data: bytes) -> int | None:
    """Create `path` as `create_exclusive` does; return a descriptor of it, None if it exists.

    The descriptor is that of the file which this call created, whoever has its name by now.

    Raises:
        OSError: as `create_exclusive`.
    """
    temporary = _write_temporary(path, data)
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
        try:
            created = _linked(temporary, path)
            if created:
                sync_folder(path.parent)
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
    finally:
        temporary.unlink(missing_ok=True)
    os.close(descriptor)
    return None


def _linked(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # A network file system may lose the answer to a link that did happen and report the
        # retry as a collision; the link count tells (open(2), O_EXCL).
        return temporary.stat().st_nlink == 2
    return True


def append_fsync(path: Path, data: bytes) -> None:
    """Append `data` to `path` (made if absent) and return once it is on disk.

    After a crash the file may end in a part of `data`: readers need a frame that shows it.

    Raises:
        OSError: the write failed; a part of `data` may be in the file.
    """
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Return the JSON value in `path`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON; the message names the file.
    """
    data = path.read_bytes()
    try:
        return json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}): remove it or restore it") from error


def sync_folder(folder: Path) -> None:
    """Return once the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems refuse to sync a folder; the file itself is synced by now.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove `folder` with all in it, whatever modes its folders were given.

    Links are removed, never followed. It is no error that the folder, or something in it, is gone
    already: what a killed process left may still be removed by a child that outlived it.

    Raises:
        OSError: something in it cannot be removed; the rest is gone.
    """
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        with suppress(FileNotFoundError):
            _make_removable(folder)
            shutil.rmtree(folder)
            return
    shutil.rmtree(folder)


def _make_removable(folder: Path) -> None:
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 (os.walk's own)
            if not os.path.islink(path):  # noqa: PTH114
                with suppress(OSError):
                    os.chmod(path, 0o700)  # noqa: PTH101
    folder.chmod(0o700)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:150]}.{secrets.token_hex(8)}.tmp")


def _write_temporary(path: Path, data: bytes) -> Path:
    """Return a synced file with `data` beside `path`, under a name nobody else draws."""
    temporary = _temporary_name(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o644)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            # close() too reports a full disk or quota on network file systems.
            os.close(descriptor)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
