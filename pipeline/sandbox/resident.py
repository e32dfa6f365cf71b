"""The host's half of the resident shell: orders out, bounded output in, time limits kept.

Owns one sandbox's control folder and the conversation over its FIFOs. How the shell is started,
and whose descendants its processes are, is the `Shell`'s business, so that a temporary copy and a
container run commands in the same way and with the same guarantees.
"""

import fcntl
import os
import secrets
import selectors
import struct
import termios
import threading
import time
from collections.abc import Sequence
from typing import Literal, Protocol

from pipeline.host.process import ProcessIdentity
from pipeline.host.proctable import ProcessStat
from pipeline.protocols import CommandResult
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders, process_tree
from pipeline.sandbox.control import ControlFolder
from pipeline.sandbox.limits import Limits
from pipeline.sandbox.resident_script import RUNNER
from pipeline.sandbox.stream import OutputStream

_FIRST_TICK_S = 0.03
_TICK_S = 0.5
_REPLY_AFTER_KILL_S = 10.0
_CHUNK_BYTES = 1 << 16
_STOPPED = "this sandbox was stopped while a command ran"
_SILENT = ":; cat /dev/null"
"""Prints nothing, as a shell and as a program."""
_LOCALES = ("C.UTF-8", "C")
"""Which an image may lack less than its own; programs take `C` where they lack theirs."""
KILLED = -1
"""Return code of a command that was killed at a limit."""
Limit = Literal["memory", "processes"]


class Shell(Protocol):
    """Starts and ends the process that runs `RUNNER` in a sandbox."""

    @property
    def scope(self) -> Literal["namespace", "tree"]:
        """Whether the sandbox has process ids of its own."""
        ...

    @property
    def control(self) -> str:
        """The control folder as the sandbox sees it."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the sandbox was stopped, perhaps under a running command."""
        ...

    def launch(self, argv: Sequence[str]) -> None:
        """Start `argv` inside; called again when an earlier one has died."""
        ...

    def roots(self) -> Sequence[int]:
        """Return the host's ids of the processes whose descendants the sandbox's are."""
        ...

    def ready(self) -> None:
        """Take note that what was launched is ready for commands."""
        ...

    def alive(self) -> bool:
        """Return whether what was launched still runs."""
        ...

    def log_tail(self) -> str:
        """Return the last lines of what the launched process complained about."""
        ...


class Resident:
    """A shell inside a sandbox that runs one command at a time."""

    def __init__(
        self, control: ControlFolder, shell: Shell, *, workdir: str, limits: Limits
    ) -> None:
        self._files = control
        self._shell = shell
        self._workdir = workdir
        self._limits = limits
        self._lock = threading.RLock()
        self._number = 0
        self._pipes: dict[str, int] = {}
        self._background: set[int] = set()
        self._infrastructure: frozenset[ProcessIdentity] = frozenset()
        self._locale = ""
        self._mark = ""

    def start(self) -> None:
        """Return once the shell is ready for its first command.

        Raises:
            SandboxError: it did not come up in time.
            DiskError: no room for the control folder.
        """
        self.close()
        try:
            for name in ("commands", "replies", "life"):
                # Both ends at once, so that opening waits for nobody; but only the shell may
                # hold the writing end of `replies`: its loss is how we learn of a dead shell.
                access = os.O_RDONLY if name == "replies" else os.O_RDWR
                self._pipes[name] = self._files.open_fifo(name, access)
            self._files.put("runner", RUNNER.encode())
        except OSError as error:
            raise folders.failed("the sandbox cannot make its control folder", error) from error
        control = self._shell.control
        how = [self._workdir, self._shell.scope, self._locale, self._mark]
        self._shell.launch(["bash", f"{control}/runner", control, *how])
        if self._read_reply(time.monotonic() + self._limits.start_timeout_s) != b"ready\n":
            raise SandboxError(f"the sandbox's shell did not start: {self._shell.log_tail()}")
        self._infrastructure = process_tree.identities(process_tree.family(self._shell.roots()))
        self._shell.ready()

    def silence(self, *, mend_locale: bool) -> None:
        """Return once a command that prints nothing has no output.

        An image may print a line whenever a shell starts, as for a locale that it lacks; every
        output would begin with it, a submission's too. `mend_locale` allows another locale to be
        set; otherwise, and where that does not help, what precedes a command's own output is cut
        off at a mark.

        Raises:
            SandboxError: nothing helps, or the shell did not start again.
        """
        noise = self._noise()
        for locale in _LOCALES if mend_locale else ():
            if noise:
                self._locale = locale
                self.start()
                noise = self._noise()
        if noise:
            self._locale = ""
            self._mark = secrets.token_hex(16)
            self.start()
            noise = self._noise()
        if noise:
            raise SandboxError(
                f"a command that prints nothing prints {noise.strip()[:300]!r}: mend what the "
                "image runs when a program starts (BASH_ENV, LD_PRELOAD, /root/.bashrc, its locale)"
            )

    def _noise(self) -> str:
        return self.execute(_SILENT, timeout_s=self._limits.start_timeout_s).output

    def execute(
        self, command: str, *, timeout_s: float, whole_after: bytes | None = None
    ) -> CommandResult:
        """Run `command` and return what it left; see `pipeline.protocols.Sandbox.execute`."""
        with self._lock:
            output = OutputStream(
                self._limits.output_bytes,
                whole_after=whole_after,
                begins_after=self._mark.encode(),
            )
            return self._execute(command, timeout_s, f"profile {self._workdir}", output)

    def execute_ours(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a command of our own in /, deaf to what other commands added to the profile."""
        with self._lock:
            kept = OutputStream(self._limits.output_bytes)
            return self._execute(command, timeout_s, "plain /", kept)

    def close(self) -> None:
        """Let go of every descriptor; a shell that still runs takes it as its owner's death."""
        with self._lock:
            for descriptor in (*self._pipes.values(), *self._background):
                os.close(descriptor)
            self._pipes.clear()
            self._background.clear()

    # --- one command -----------------------------------------------------------------------------
    def _execute(
        self, command: str, timeout_s: float, how: str, kept: OutputStream
    ) -> CommandResult:
        started = time.monotonic()
        self._number += 1
        try:
            output = self._send(command, how)
        except KeyError:
            raise SandboxError(_STOPPED) from None
        except OSError as error:
            raise folders.failed("the sandbox cannot take a command", error) from error
        limit: Limit | None = None
        returncode: int | None = None
        try:
            returncode, limit = self._attend(output, kept, started + timeout_s)
            self._keep_available(output, kept)
        finally:
            self._retire(output, running=returncode is not None)
        if self._shell.finished:
            raise SandboxError(_STOPPED)
        if returncode is None:
            self._revive()
        kept.end()
        shown = kept.text()
        return CommandResult(
            output=shown.text + ("" if limit is None else self._note_on(limit)),
            returncode=137 if returncode is None else returncode,
            timed_out=limit is None and returncode == KILLED,
            limit=limit,
            dropped_bytes=kept.dropped_bytes,
            stream_bytes=kept.stream_bytes,
            undecodable_bytes=shown.undecodable_bytes,
            whole=kept.whole,
            wall_s=time.monotonic() - started,
        )

    def _send(self, command: str, how: str) -> int:
        """Give the order; return the descriptor from which its output comes."""
        self._files.put(f"order.{self._number}", command.encode())
        output = self._files.open_fifo(f"out.{self._number}", os.O_RDONLY)
        try:
            os.write(self._pipes["commands"], f"{self._number} {how}\n".encode())
        except (OSError, KeyError):
            os.close(output)
            raise
        return output

    def _attend(
        self, output: int, kept: OutputStream, deadline: float
    ) -> tuple[int | None, Limit | None]:
        """Take output until the command ends or passes a limit.

        Returns its return code, None if the shell itself died, and the limit that it passed, None
        for the time limit.
        """
        replies = self._pipes["replies"]
        pause_s = _FIRST_TICK_S
        next_tick = time.monotonic() + pause_s
        with selectors.DefaultSelector() as selector:
            for descriptor in {output, replies, *self._background}:
                selector.register(descriptor, selectors.EVENT_READ)
            while (now := time.monotonic()) < deadline:
                events = selector.select(max(0.0, min(deadline, next_tick) - now))
                ready = {key.fd for key, _ in events}
                for descriptor in ready - {replies}:
                    if not _take(descriptor, kept if descriptor == output else None):
                        selector.unregister(descriptor)
                if replies in ready:
                    reply = self._read_reply(time.monotonic() + _REPLY_AFTER_KILL_S)
                    if not reply:
                        return None, None
                    if (code := _code_in(reply, self._number)) is not None:
                        return code, None
                if time.monotonic() >= next_tick:
                    # A fork bomb is best met early; a long test run need not be watched so closely.
                    pause_s = min(2 * pause_s, _TICK_S)
                    next_tick = time.monotonic() + pause_s
                    if limit := self._passed_limit():
                        return self._kill_command(limit)
        return self._kill_command(None)

    def _kill_command(self, limit: Limit | None) -> tuple[int | None, Limit | None]:
        roots = self._shell.roots()
        holders = [*roots, *(identity.pid for identity in self._infrastructure)]

        most = self._limits.processes
        # To tell commands apart takes a look at every process: too long in a fork bomb, which
        # goes with all that the sandbox's commands have running.
        crowded = len(process_tree.family(roots, at_most=most)) > most

        def members() -> Sequence[ProcessStat]:
            if not crowded:
                return process_tree.command_family(roots, self._number, spared=self._infrastructure)
            everyone = process_tree.family(roots, at_most=most)
            return [
                stat
                for stat in everyone
                if not process_tree.identities([stat]) & self._infrastructure
            ]

        gone = process_tree.kill_until_gone(members, spared=holders)
        until = time.monotonic() + _REPLY_AFTER_KILL_S
        while gone and (reply := self._read_reply(until)):
            if _code_in(reply, self._number) is not None:
                return KILLED, limit
        if not gone:
            # What forks faster than we kill goes with everything else of the sandbox.
            process_tree.kill_until_gone(lambda: process_tree.family(roots), spared=roots)
        self._revive()
        return KILLED, limit

    def _passed_limit(self) -> Limit | None:
        members = process_tree.family(self._shell.roots(), at_most=self._limits.processes)
        if len(members) > self._limits.processes:
            return "processes"
        memory = self._limits.memory_bytes
        if memory is not None and process_tree.memory_bytes(members, enough=memory) > memory:
            return "memory"
        return None

    def _note_on(self, limit: Limit) -> str:
        """Return what the command's output ends with when it was killed at `limit`."""
        if limit == "processes":
            return f"\n[killed: over the sandbox's limit of {self._limits.processes} processes]\n"
        mebibytes = (self._limits.memory_bytes or 0) >> 20
        return f"\n[killed: over the sandbox's memory limit of {mebibytes} MiB]\n"

    def _read_reply(self, deadline: float) -> bytes:
        """Return the shell's next line; empty if it died or the deadline came first."""
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipes["replies"], selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return b""
                if selector.select(min(left_s, _TICK_S)):
                    byte = os.read(self._pipes["replies"], 1)
                    if not byte:
                        return b""
                    line += byte
                elif not self._shell.alive():
                    return b""
        return line

    def _keep_available(self, output: int, kept: OutputStream) -> None:
        """Take what the command wrote before it ended, and nothing that comes later."""
        available = struct.unpack("i", fcntl.ioctl(output, termios.FIONREAD, b"\0" * 4))[0]
        while available > 0:
            chunk = os.read(output, min(available, _CHUNK_BYTES))
            if not chunk:
                return
            kept.append(chunk)
            available -= len(chunk)

    def _retire(self, output: int, *, running: bool) -> None:
        """Forget the command's files; go on reading for what it left in the background."""
        for name in ("out", "order"):
            self._files.drop(f"{name}.{self._number}")
        for descriptor in [output, *self._background]:
            if not running or not _take(descriptor, None):
                self._background.discard(descriptor)
                os.close(descriptor)
            else:
                self._background.add(descriptor)

    def _revive(self) -> None:
        """Start another shell in the same sandbox: a command killed the one that ran it.

        That is a thing agents do (`pkill bash`), so it is no failure of ours while it works.
        """
        self.start()


def _code_in(reply: bytes, number: int) -> int | None:
    """Return the return code in the shell's reply, None if it is not on command `number`."""
    match reply.split():
        case [about, code] if about == b"%d" % number and code.isdigit():
            return int(code)
    return None


def _take(descriptor: int, kept: OutputStream | None) -> bool:
    """Read a chunk, into `kept` if given; return False at the end of the stream."""
    try:
        chunk = os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return True
    if kept is not None:
        kept.append(chunk)
    return bool(chunk)
