"""The folders of the sandboxes on this node: who owns one, and what dead owners left.

Owns naming, removal and the janitor's sweep. A folder's name says which process made it, so a
folder without a living owner is known for one even if its owner died while making it. What runs
in it is recorded in its file `shell`. The folders lie on a disk of this node, never on a shared
one: process ids of another node mean nothing here.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from pipeline.host.files import is_disk_full, remove_tree
from pipeline.host.process import ProcessIdentity, is_alive, process_identity
from pipeline.records.failure import DiskError, SandboxError
from pipeline.sandbox import process_tree

_NAME = re.compile(r"sandbox-(?P<pid>\d+)-(?P<start_ticks>\d+)-[0-9a-f]{8}")
_FULL_BYTES = 16 << 20


def create(root: Path, inner: tuple[str, ...]) -> Path:
    """Return a new folder below `root` that this process owns, with the folders `inner` in it.

    Raises:
        SandboxError: it cannot be made.
        DiskError: no room.
    """
    identity = process_identity(os.getpid())
    assert identity is not None
    name = f"sandbox-{identity.pid}-{identity.start_ticks}-{secrets.token_hex(4)}"
    folder = root / name
    try:
        for part in inner:
            (folder / part).mkdir(parents=True)
    except OSError as error:
        discard(folder)
        raise failed(f"cannot make {folder}", error) from error
    return folder


def discard(folder: Path) -> None:
    """Remove `folder`; what cannot be removed is left to a later janitor."""
    with suppress(OSError):
        remove_tree(folder)


def record_shell(folder: Path, identity: ProcessIdentity) -> None:
    """Write down which process holds the sandbox in `folder`, for the janitor."""
    (folder / "shell").write_text(f"{identity.pid} {identity.start_ticks}\n")


def record_namespace(folder: Path, namespace: str) -> None:
    """Write down which process namespace the sandbox has, where it has one of its own."""
    (folder / "namespace").write_text(namespace)


def sweep(root: Path) -> int:
    """Kill and remove the sandboxes of owners that are gone; return how many there were."""
    count = 0
    for folder in sorted(root.glob("sandbox-*")) if root.is_dir() else []:
        match = _NAME.fullmatch(folder.name)
        if match is None:
            continue
        owner = ProcessIdentity(int(match["pid"]), int(match["start_ticks"]))
        if is_alive(owner):
            continue
        _end_leftovers(folder)
        discard(folder)
        count += not folder.exists()
    return count


def raise_if_full(folder: Path) -> None:
    """Raise if the disk of `folder` has no room left.

    Raises:
        DiskError: it has none.
    """
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < _FULL_BYTES or disk.f_favail == 0 < disk.f_files:
        raise DiskError(f"the disk of {folder.parent} is full: free some or use another one")


def failed(what: str, error: OSError) -> SandboxError | DiskError:
    """Return `error` as what it means for a run."""
    kind = DiskError if is_disk_full(error) else SandboxError
    return kind(f"{what}: {error}")


def _end_leftovers(folder: Path) -> None:
    """Kill what the sandbox in `folder` still runs, what is the parent of orphans last."""
    with suppress(OSError, ValueError):
        pid, start_ticks = (folder / "shell").read_text().split()
        shell = ProcessIdentity(int(pid), int(start_ticks))
        if is_alive(shell):
            process_tree.kill_until_gone(
                lambda: process_tree.family([shell.pid]), spared=[shell.pid]
            )
            process_tree.kill_process(shell)
    with suppress(OSError):
        namespace = (folder / "namespace").read_text()
        process_tree.kill_until_gone(lambda: process_tree.namespace_members(namespace), spared=[])
