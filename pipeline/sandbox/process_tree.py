"""Which processes are a sandbox's, and which of them a command's.

Owns the search through `/proc` and the killing. A command's processes are those that carry its
number in their environment, and what they started: a child that made a session of its own, or
was orphaned, is found all the same. One that emptied its environment as well is found by its
age, since commands of a sandbox run one at a time.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.host.process import ProcessIdentity, signal_process
from pipeline.host.proctable import ProcessStat, all_processes, process_stat

COMMAND_VARIABLE = b"SANDBOX_COMMAND="
_KILL_ROUNDS = 400
_PAUSE_S = 0.005


def family(roots: Iterable[int], *, at_most: int = 1 << 22) -> list[ProcessStat]:
    """Return the living descendants of `roots`, without the roots themselves.

    The search ends once there are more than `at_most`: a fork bomb must not keep us counting.
    """
    found: dict[int, ProcessStat] = {}
    pending = list(roots)
    while pending and len(found) <= at_most:
        for child in _children(pending.pop()):
            stat = process_stat(child)
            if stat is not None and child not in found:
                pending.append(child)
                found[child] = stat
    return [stat for stat in found.values() if stat.state not in "ZX"]


def command_family(
    roots: Sequence[int],
    number: int,
    *,
    spared: frozenset[ProcessIdentity],
) -> list[ProcessStat]:
    """Return the processes of command `number`.

    Args:
        roots: whose descendants the sandbox's processes are.
        number: the command's; earlier commands' background processes are left out.
        spared: what holds the sandbox up, such as its resident shell.
    """
    members = [
        stat for stat in family(roots) if ProcessIdentity(stat.pid, stat.start_ticks) not in spared
    ]
    marks = {stat.pid: _mark(stat.pid) for stat in members}
    parents = {stat.pid: stat.ppid for stat in members}
    return [stat for stat in members if _owner(stat.pid, parents, marks) in {number, None}]


def kill_until_gone(find: Callable[[], Sequence[ProcessStat]], *, spared: Sequence[int]) -> bool:
    """Kill what `find` returns until it returns nothing; return whether it came to that.

    Args:
        find: looks for who is to die.
        spared: processes whose groups hold others too.
    """
    ours = {os.getpgrp(), *(stat.group for pid in spared if (stat := process_stat(pid)))}
    for _ in range(_KILL_ROUNDS):
        living = find()
        if not living:
            return True
        # A whole group at once first: no member can fork between the kernel's looks, so this is
        # what catches up with a fork bomb. A command's shell leads a group of its own.
        for group in {stat.group for stat in living} - ours:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for stat in living:
                signal_process(ProcessIdentity(stat.pid, stat.start_ticks), number)
        time.sleep(_PAUSE_S)
    return False


def namespace_of(roots: Sequence[int]) -> str:
    """Return the process namespace of the youngest descendant of `roots`; empty if unknown."""
    for stat in sorted(family(roots), key=lambda stat: -stat.start_ticks):
        if namespace := _namespace(stat.pid):
            return namespace
    return ""


def namespace_members(namespace: str) -> list[ProcessStat]:
    """Return who lives in that process namespace, none if it is ours or unknown."""
    if not namespace or namespace == _namespace(os.getpid()):
        return []
    return [
        stat
        for stat in all_processes()
        if stat.state not in "ZX" and _namespace(stat.pid) == namespace
    ]


def kill_process(identity: ProcessIdentity) -> None:
    """Kill that very process; one that is gone is no error."""
    signal_process(identity, signal.SIGKILL)


def identities(members: Iterable[ProcessStat]) -> frozenset[ProcessIdentity]:
    """Return the members as what cannot be mistaken for later processes."""
    return frozenset(ProcessIdentity(stat.pid, stat.start_ticks) for stat in members)


def resident_bytes(members: Iterable[ProcessStat]) -> int:
    """Return the resident memory of all members; shared pages count once for each."""
    return sum(stat.rss_pages for stat in members) * os.sysconf("SC_PAGE_SIZE")


def memory_bytes(members: Iterable[ProcessStat], *, enough: int) -> int:
    """Return the memory that all members hold together, shared pages counted once.

    That count is costly, so it is made only if a cheap upper bound passes `enough`, and made again
    where it does too: while one member after the other ends, pages that they shared move to those
    that are read last and would count several times.
    """
    living = list(members)
    held = resident_bytes(living)
    for _ in range(2):
        if held > enough:
            held = sum(map(_proportional_bytes, living))
    return held


def _proportional_bytes(stat: ProcessStat) -> int:
    """Return a process's pages, each divided by the number of processes that share it.

    One that has ended since it was listed holds none; one that we may not look into counts whole.
    """
    try:
        text = Path(f"/proc/{stat.pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return resident_bytes([stat])
    shares = (line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))
    return int(next(shares, 0)) << 10


def _owner(pid: int, parents: dict[int, int], marks: dict[int, int | None]) -> int | None:
    """Return the command that `pid` belongs to by its own mark or its nearest marked ancestor."""
    seen = pid
    while seen in marks:
        mark = marks[seen]
        if mark is not None:
            return mark
        seen = parents[seen]
    return None


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 (no file lies behind it)
    except OSError:
        return ""


def _mark(pid: int) -> int | None:
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in block.split(b"\0"):
        if entry.startswith(COMMAND_VARIABLE):
            value = entry[len(COMMAND_VARIABLE) :]
            return int(value) if value.isdigit() else None
    return None


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 (a hot path)
        lists = [Path(f"/proc/{pid}/task/{task}/children").read_bytes() for task in tasks]
    except FileNotFoundError:
        # Gone meanwhile, or a kernel without these lists.
        if not Path("/proc/thread-self/children").exists():
            return [stat.pid for stat in all_processes() if stat.ppid == pid]
        return []
    except OSError:
        return []
    return [int(child) for line in lists for child in line.split()]
