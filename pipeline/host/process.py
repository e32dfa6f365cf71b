"""Child processes that end as a group, bounded in time and in output.

Owns starting, bounding, stopping and reaping: every child leads a session of its own and is
killed with all that it started. Does not know what it runs.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from pipeline.host.output import HeadTail
from pipeline.host.proctable import (
    ProcessIdentity,
    all_processes,
    descendants,
    is_alive,
    process_identity,
    signal_process,
)

__all__ = [
    "ChildGroup",
    "Completed",
    "ProcessIdentity",
    "descendants",
    "is_alive",
    "process_identity",
    "run_command",
    "signal_process",
    "start_group",
    "warnings_are_ours",
]

_CHUNK_BYTES = 1 << 16
_POLL_S = 0.02
_SHORT_POLL_S = 0.002
DEFAULT_OUTPUT_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """How a command ended."""

    output: bytes
    """stdout and stderr as one ordered stream; the middle is missing if `dropped_bytes`."""
    returncode: int
    """As `subprocess` gives it: negative for the signal that ended it."""
    timed_out: bool
    dropped_bytes: int
    wall_s: float

    @property
    def text(self) -> str:
        """The output as UTF-8, with replacement characters."""
        return self.output.decode(errors="replace")


class ChildGroup:
    """A child that leads its own session, with everything it starts.

    Made by `start_group`. Whoever starts one stops it.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self.popen = popen
        self.pid = popen.pid
        self.identity = process_identity(popen.pid)

    @property
    def stdin(self) -> IO[bytes] | None:
        """The child's standard input, where it was asked for."""
        return self.popen.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        """The child's output, where it was not sent to a file."""
        return self.popen.stdout

    @property
    def returncode(self) -> int | None:
        """The leader's exit status, None while it runs."""
        return self.popen.poll()

    def alive(self) -> bool:
        """Return whether the leader runs."""
        return self.popen.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Return the leader's exit status, None if it still runs after `timeout_s`."""
        try:
            return self.popen.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def members(self) -> list[ProcessIdentity]:
        """Return who lives of the session and of the leader's other descendants."""
        table = all_processes()
        family = {*descendants(self.pid, table), self.pid}
        return [
            ProcessIdentity(stat.pid, stat.start_ticks)
            for stat in table
            if stat.state not in "ZX" and (stat.session == self.pid or stat.pid in family)
        ]

    def stop(self, grace_s: float) -> bool:
        """End the whole group: SIGTERM, up to `grace_s` to obey, then SIGKILL until none is left.

        A descendant that left the session is included while its parents still lead to it. May
        be called twice. Returns whether nothing is left.
        """
        known = set(self.members())
        for identity in known:
            signal_process(identity, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            self.popen.poll()
            known |= set(self.members())
            if not any(is_alive(identity) for identity in known):
                break
            time.sleep(_POLL_S)
        return self._kill(known)

    def _kill(self, known: set[ProcessIdentity]) -> bool:
        # A dying parent may still fork: look again until a look finds nothing.
        for _ in range(250):
            known |= set(self.members())
            living = [identity for identity in known if is_alive(identity)]
            if not living:
                break
            for identity in living:
                signal_process(identity, signal.SIGKILL)
            time.sleep(_POLL_S / 4)
            self.popen.poll()
        else:
            return False
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()
        return True


@contextlib.contextmanager
def warnings_are_ours() -> Iterator[None]:
    """Let children that this thread starts meanwhile, and theirs, be deaf to SIGUSR2.

    Slurm sends its warning before the time limit to every process of a job's steps, sessions of
    their own included, and it ends whoever does not handle it: the model server, a test in a
    sandbox. Only the worker itself is meant. A blocked signal stays blocked over fork and exec.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_interrupts() -> None:
    """Give children SIGINT and SIGQUIT back where whoever started us had them ignored.

    A shell does that to what it runs in the background, children inherit it, and a test that
    interrupts itself would then pass. A handler of ours is reset by exec. Main thread only.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def start_group(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    pipe_stdin: bool = False,
    pipe_stdout: bool = False,
    pass_fds: Sequence[int] = (),
) -> ChildGroup:
    """Start `argv` in a session of its own.

    Args:
        env: the whole environment; None passes ours on.
        log: where stdout and stderr are appended; without it and without `pipe_stdout` they are
            discarded.
        pipe_stdin: give the child a pipe instead of an empty stdin.
        pipe_stdout: give the caller a pipe with stdout; stderr then goes to `log`, or is mixed
            in where there is no `log`.
        pass_fds: further descriptors that the child keeps.

    Raises:
        OSError: the program is missing or cannot be run.
    """
    target: int | IO[bytes] = subprocess.DEVNULL
    if log is not None:
        target = log.open("ab")
    stdout: int | IO[bytes] = subprocess.PIPE if pipe_stdout else target
    stderr = subprocess.STDOUT if log is None else target
    try:
        with warnings_are_ours():
            popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if pipe_stdin else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                bufsize=0,
            )
    finally:
        if not isinstance(target, int):
            target.close()
    return ChildGroup(popen)


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: bytes | None = None,  # noqa: A002 (the word that subprocess has for it)
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES,
    grace_s: float = 2.0,
) -> Completed:
    """Run `argv` to its end or its time limit; nothing of its session survives the call.

    A background child that keeps the output open does not delay the return: it is killed once
    the command itself has ended. Daemons that make a session of their own stay.

    Raises:
        OSError: the program is missing or cannot be run.
    """
    started = time.monotonic()
    child = start_group(argv, env=env, cwd=cwd, pipe_stdin=input is not None, pipe_stdout=True)
    pump = _Pump(child.popen, input or b"", HeadTail(output_limit_bytes))
    try:
        ended = pump.run(started + timeout_s)
        if not ended:
            _signal_session(child.popen, signal.SIGTERM)
            pump.run(time.monotonic() + grace_s)
    finally:
        # The leader is not reaped yet, so its group's number cannot be anyone else's by now.
        _signal_session(child.popen, signal.SIGKILL)
        returncode = child.popen.wait()
        pump.close()
    return Completed(
        output=pump.kept.joined(),
        returncode=returncode,
        timed_out=not ended,
        dropped_bytes=pump.kept.dropped_bytes,
        wall_s=time.monotonic() - started,
    )


class _Pump:
    """Feeds a child and takes its output, until it has ended or a deadline has come."""

    def __init__(self, popen: "subprocess.Popen[bytes]", pending: bytes, kept: HeadTail) -> None:
        assert popen.stdout is not None
        self._popen = popen
        self._stdout = popen.stdout
        self._rest = memoryview(pending)
        self.kept = kept
        self._selector = selectors.DefaultSelector()
        os.set_blocking(self._stdout.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        if popen.stdin is not None:
            os.set_blocking(popen.stdin.fileno(), False)
            self._selector.register(popen.stdin, selectors.EVENT_WRITE)

    def run(self, deadline: float) -> bool:
        """Return whether the child ended before `deadline`; all it wrote till then is kept."""
        pause_s = _POLL_S
        while (left_s := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(min(left_s, pause_s)):
                if key.fileobj is not self._stdout:
                    self._feed()
                elif self._take() == b"":
                    # Only the exit is left to wait for, and nothing announces it.
                    self._selector.unregister(self._stdout)
                    pause_s = _SHORT_POLL_S
            if _has_ended(self._popen):
                while self._take():
                    pass
                return True
        return _has_ended(self._popen)

    def close(self) -> None:
        """Let go of the pipes."""
        self._selector.close()
        for stream in (self._popen.stdin, self._stdout):
            if stream is not None:
                stream.close()

    def _feed(self) -> None:
        stdin = self._popen.stdin
        assert stdin is not None
        try:
            if self._rest:
                self._rest = self._rest[os.write(stdin.fileno(), self._rest[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = memoryview(b"")
        if not self._rest:
            self._selector.unregister(stdin)
            stdin.close()

    def _take(self) -> bytes | None:
        """Keep and return what is there: empty at the end, None if there is nothing yet."""
        try:
            chunk = os.read(self._stdout.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self.kept.append(chunk)
        return chunk


def _has_ended(popen: "subprocess.Popen[bytes]") -> bool:
    """Return whether the child has ended, without reaping it."""
    if popen.returncode is not None:
        return True
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, popen.pid, options) is not None


def _signal_session(popen: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal the child's process group; a group that is gone, or all zombies, is no error."""
    try:
        os.killpg(popen.pid, number)
    except (ProcessLookupError, PermissionError):
        return
