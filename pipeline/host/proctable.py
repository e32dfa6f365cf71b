"""What the kernel says of processes, read from `/proc` (Linux only).

Owns identity and kinship: a process is its id *and* its start time, since ids are used again.
Starts and ends nothing; see `pipeline.host.process`.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class ProcessIdentity(NamedTuple):
    """A process that cannot be mistaken for a later one with the same id."""

    pid: int
    start_ticks: int
    """Clock ticks after boot, field 22 of /proc/PID/stat."""


class ProcessStat(NamedTuple):
    """What /proc/PID/stat says of a process."""

    pid: int
    state: str
    ppid: int
    group: int
    session: int
    start_ticks: int
    rss_pages: int


def process_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel says of `pid`, None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces and parentheses included.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0].decode(),
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        rss_pages=int(fields[21]),
    )


def process_identity(pid: int) -> ProcessIdentity | None:
    """Return the identity of `pid`, None if there is no such process."""
    stat = process_stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat.start_ticks)


def this_machine() -> str:
    """Return what names this boot and process namespace: where it is equal, ids compare."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def is_alive(identity: ProcessIdentity) -> bool:
    """Return whether that very process runs; a zombie does not."""
    stat = process_stat(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks and stat.state not in "ZX"


def all_processes() -> list[ProcessStat]:
    """Return every process that /proc shows, zombies included."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 (hot)
    return [stat for pid in pids if (stat := process_stat(pid)) is not None]


def descendants(pid: int, table: Iterable[ProcessStat] | None = None) -> list[int]:
    """Return the ids of all living descendants of `pid`, parents before children.

    Without `table` (as `all_processes` gives it) the present state is read.
    """
    children: dict[int, list[int]] = {}
    for stat in all_processes() if table is None else table:
        if stat.state not in "ZX":
            children.setdefault(stat.ppid, []).append(stat.pid)
    found: list[int] = []
    pending = [pid]
    while pending:
        born = children.get(pending.pop(), [])
        found += born
        pending += born
    return found


def signal_process(identity: ProcessIdentity, number: int) -> bool:
    """Send a signal to that very process; return whether it was there and ours to signal."""
    if process_identity(identity.pid) != identity:
        return False
    try:
        os.kill(identity.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
