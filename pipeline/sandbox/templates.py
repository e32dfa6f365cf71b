"""Extracted images on this node, which containers lay their writable layers over.

Owns one folder per image digest below a root on a node-local disk: extracted once, read by any
number of sandboxes, dropped when the disk gets tight and nobody uses it. Extraction costs
seconds and the image's unpacked size, once a node; after that a sandbox costs only what it
writes. Locks are `flock`, which is to be trusted on a disk of one's own node only.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.host.files import remove_tree
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders

Extract = Callable[[Path, Path], None]
"""Unpacks the image at its first argument into a new folder at its second."""


class Templates:
    """The extracted images below `root`."""

    def __init__(self, root: Path, extract: Extract, *, keep_free_bytes: int) -> None:
        """Prepare; nothing is written yet.

        Args:
            root: a folder on a node-local disk, made if absent.
            extract: unpacks an image.
            keep_free_bytes: unused templates are dropped to keep so much of the disk free.
        """
        self._root = root
        self._extract = extract
        self._keep_free_bytes = keep_free_bytes

    def hold(self, image: Path, digest: str) -> tuple[Path, int]:
        """Return the extracted image and a descriptor that keeps it while it is open.

        The kernel closes the descriptor of an owner that dies, so a template is never kept for
        nobody, nor dropped under anybody.

        Raises:
            SandboxError: the image cannot be extracted.
            DiskError: no room.
        """
        name = digest.replace(":", "-")
        folder = self._root / name
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            use = self._open(f".{name}.lock")
            try:
                # Shared from here on, and never exclusive: a lock that changes its kind is let go
                # of on the way, and would wait for everyone who uses the template already.
                fcntl.flock(use, fcntl.LOCK_SH)
                if not folder.is_dir():
                    making = self._open(f".{name}.making.lock")
                    try:
                        fcntl.flock(making, fcntl.LOCK_EX)
                        self._make(image, folder)
                    finally:
                        os.close(making)
                os.utime(folder)
            except BaseException:
                os.close(use)
                raise
        except OSError as error:
            raise folders.failed(f"cannot extract {image} to {folder}", error) from error
        return folder, use

    def _make(self, image: Path, folder: Path) -> None:
        if folder.is_dir():
            return  # another process was quicker
        # One at a time makes this one, so what others began is dead.
        for dead in self._root.glob(f".{folder.name}.*.new"):
            remove_tree(dead)
        self._make_room()
        unfinished = self._unfinished(folder.name)
        try:
            self._extract(image, unfinished)
            _make_owner_writable(unfinished)
            unfinished.rename(folder)
        except BaseException:
            with suppress(OSError):
                remove_tree(unfinished)
            raise

    def sweep(self) -> None:
        """Remove what extractions left whose process is gone."""
        for unfinished in self._root.glob(".*.new"):
            name = unfinished.name[1:].rsplit(".", 2)[0]
            with self._alone(name) as alone:
                if alone:
                    remove_tree(unfinished)

    def _make_room(self) -> None:
        """Drop unused templates, those not used for longest first, until the disk has room."""
        self.sweep()
        for folder in sorted(self._root.glob("[!.]*"), key=_last_used_s):
            disk = os.statvfs(self._root)
            if disk.f_bavail * disk.f_frsize >= self._keep_free_bytes:
                return
            with self._alone(folder.name) as alone:
                if alone:
                    # Under the name of an unfinished one: half a template must not pass for one.
                    remove_tree(folder.rename(self._unfinished(folder.name)))

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Give whether nobody has a hand on the template `name`, and keep it so."""
        lock = self._open(f".{name}.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(lock)

    def _unfinished(self, name: str) -> Path:
        return self._root / f".{name}.{secrets.token_hex(4)}.new"

    def _open(self, lock: str) -> int:
        return os.open(self._root / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _last_used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process dropped it
        return 0.0


def _make_owner_writable(folder: Path) -> None:
    """Let us read and write all of an extracted image: what its root could, ours must.

    Raises:
        SandboxError: a file belongs to somebody else.
    """
    ours = os.getuid()
    for parent, names, files in os.walk(folder):
        for name in (".", *names, *files):
            path = os.path.join(parent, name)  # noqa: PTH118 (a hundred thousand files)
            info = os.lstat(path)
            if info.st_uid != ours:
                raise SandboxError(f"{path} of the extracted image belongs to another user")
            wanted = 0o700 if name in (".", *names) else 0o600
            is_link = info.st_mode & 0o170000 == 0o120000
            if not is_link and info.st_mode & wanted != wanted:
                os.chmod(path, info.st_mode & 0o7777 | wanted)  # noqa: PTH101
