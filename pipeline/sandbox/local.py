"""Sandboxes without images: a temporary copy of the repository on this node's own disk.

Owns the copy, its processes and what a dead owner left of both. With bubblewrap the copy lies at
`/testbed` of a file system of its own, where commands see the system's programs read-only and
nothing else of the machine. Without it they run as this user, in the copy; `confined` says which
it is, and callers decide whom they let run unconfined. Then `/testbed` and `/tmp` in commands,
paths and outputs stand for the copy's own folders, so that both forms read the same.
"""

import os
import re
import secrets
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pipeline.host.environment import environment
from pipeline.host.files import is_disk_full, remove_tree
from pipeline.host.process import (
    ChildGroup,
    ProcessIdentity,
    is_alive,
    process_identity,
    run_command,
    start_group,
)
from pipeline.protocols import CommandResult, Purpose
from pipeline.records.failure import DiskError, SandboxError
from pipeline.sandbox import kin, transfer
from pipeline.sandbox.limits import COMMAND_ENVIRONMENT, WORKDIR, Limits
from pipeline.sandbox.resident import Resident

Materialise = Callable[[Mapping[str, Any], Path], None]
"""Fills an empty folder with the repository of a benchmark row."""

_NO_NETWORK: Mapping[Purpose, bool] = {"rollout": False, "grade": False}
_CONTROL = "/.sandbox"
_HOME = "/home/sandbox"
_FOLDERS = {"testbed": WORKDIR, "tmp": "/tmp", "home": _HOME}
_FOLDER = re.compile(r"sandbox-(?P<pid>\d+)-(?P<start_ticks>\d+)-[0-9a-f]{8}")
_SYSTEM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "var")
# Only a process that has asked to be one becomes the parent of its descendants' orphans, and a
# shell cannot ask; the wish survives exec.
_AS_SUBREAPER = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class LocalSandboxes:
    """Starts sandboxes that are copies on this node's disk."""

    def __init__(
        self,
        root: Path,
        materialise: Materialise,
        *,
        limits: Limits | None = None,
        network: Mapping[Purpose, bool] | None = None,
        confine: bool | None = None,
    ) -> None:
        """Prepare a factory; nothing is started or written yet.

        Args:
            root: a folder on a node-local disk, made if absent.
            materialise: fills a folder with a row's repository.
            limits: bounds on each sandbox.
            network: whether commands reach the network; only kept where confined.
            confine: use bubblewrap; None: where it works.

        Raises:
            SandboxError: `confine` is asked for and bubblewrap does not work here.
        """
        self._root = root
        self._materialise = materialise
        self._limits = limits or Limits()
        self._network = {**_NO_NETWORK, **(network or {})}
        works = confine is not False and bubblewrap_works()
        if confine and not works:
            raise SandboxError(
                "bubblewrap does not work here: install it, or allow user namespaces, "
                "or do not ask for confined local sandboxes"
            )
        self.confined = works

    def start(self, row: Mapping[str, Any], *, purpose: Purpose) -> "LocalSandbox":
        """Return a fresh copy of the row's repository, ready for commands.

        Raises:
            SandboxError: it did not start.
            DiskError: no room for the copy.
        """
        identity = process_identity(os.getpid())
        assert identity is not None
        name = f"sandbox-{identity.pid}-{identity.start_ticks}-{secrets.token_hex(4)}"
        folder = self._root / name
        try:
            for inner in ("testbed", "home", "tmp", "control"):
                (folder / inner).mkdir(parents=True)
            self._materialise(row, folder / "testbed")
        except OSError as error:
            _discard(folder)
            kind = DiskError if is_disk_full(error) else SandboxError
            raise kind(f"cannot copy the repository into {folder}: {error}") from error
        sandbox = LocalSandbox(
            folder,
            confined=self.confined,
            network=self._network[purpose],
            limits=self._limits,
        )
        try:
            sandbox.open()
        except BaseException:
            sandbox.stop()
            raise
        return sandbox

    def janitor(self) -> int:
        """Kill and remove the sandboxes of owners that are gone; return how many there were."""
        count = 0
        for folder in sorted(self._root.glob("sandbox-*")) if self._root.is_dir() else []:
            match = _FOLDER.fullmatch(folder.name)
            if match is None:
                continue
            owner = ProcessIdentity(int(match["pid"]), int(match["start_ticks"]))
            if is_alive(owner):
                continue
            _end_leftovers(folder)
            _discard(folder)
            count += not folder.exists()
        return count

    def digest(self, row: Mapping[str, Any]) -> str | None:  # noqa: ARG002 (the protocol's)
        """Return None: there is no image."""
        return None


class LocalSandbox:
    """One copy with its resident shell; made by `LocalSandboxes.start`."""

    workdir = WORKDIR

    def __init__(self, folder: Path, *, confined: bool, network: bool, limits: Limits) -> None:
        self._folder = folder
        self._paths = _Paths(
            {} if confined else {target: folder / name for name, target in _FOLDERS.items()}
        )
        self._shell: _LocalShell = (
            _Confined(folder, network=network) if confined else _Plain(folder)
        )
        self._resident = Resident(
            folder / "control",
            self._shell,
            workdir=WORKDIR if confined else str(folder / "testbed"),
            limits=limits,
        )
        self._stopped = False

    def open(self) -> None:
        """Start the shell.

        Raises:
            SandboxError: it did not start.
        """
        self._resident.start()

    def execute(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run `command` with bash in the copy; see `pipeline.protocols.Sandbox`."""
        self._require_open()
        result = self._resident.execute(self._paths.to_host(command), timeout_s=timeout_s)
        if result.returncode and "No space left on device" in result.output:
            _raise_if_full(self._folder)
        return self._paths.in_result(result)

    def upload(self, data: bytes, path: str) -> None:
        """Write `data` to `path`; a relative path is under `workdir`."""
        self._require_open()
        transfer.upload(
            self._resident,
            self._folder / "control",
            self._shell.control,
            data=data,
            path=self._paths.to_host(path),
            workdir=self._paths.to_host(WORKDIR),
        )

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the file at `path`; `FileNotFoundError` if absent."""
        self._require_open()
        return transfer.download(
            self._resident,
            self._folder / "control",
            self._shell.control,
            path=self._paths.to_host(path),
            limit_bytes=limit_bytes,
            workdir=self._paths.to_host(WORKDIR),
        )

    def stop(self) -> None:
        """Kill every process and remove the copy. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        roots = self._shell.roots()
        if not kin.kill_until_gone(lambda: kin.family(roots), spared=roots):
            raise SandboxError(f"processes of {self._folder} survive SIGKILL; look at the node")
        self._shell.end()
        self._resident.close()
        _discard(self._folder)

    def _require_open(self) -> None:
        if self._stopped:
            raise SandboxError("this sandbox was stopped")


class _LocalShell(ABC):
    """What both forms share: a child group whose descendants are the sandbox's processes."""

    scope: Literal["namespace", "tree"]
    control: str

    @abstractmethod
    def launch(self, argv: Sequence[str]) -> None: ...

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: ChildGroup | None = None

    def _start(
        self, argv: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int] = ()
    ) -> None:
        self.end()
        self._child = start_group(
            argv, env=env, cwd=Path("/"), log=self._folder / "shell.log", pass_fds=pass_fds
        )
        identity = self._child.identity
        if identity is not None:
            record = f"{identity.pid} {identity.start_ticks}\n"
            (self._folder / "shell").write_text(record)

    def roots(self) -> Sequence[int]:
        return () if self._child is None else (self._child.pid,)

    def alive(self) -> bool:
        return self._child is not None and self._child.alive()

    def log_tail(self) -> str:
        with suppress(OSError):
            return (self._folder / "shell.log").read_text(errors="replace")[-2000:].strip()
        return ""

    def end(self) -> None:
        """Kill what was launched; a parent of orphans is killed after them."""
        if self._child is not None:
            self._child.stop(grace_s=0)
            self._child = None


class _Plain(_LocalShell):
    """The copy as this user sees it."""

    scope = "tree"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.control = str(folder / "control")

    def launch(self, argv: Sequence[str]) -> None:
        home, tmp, testbed = (str(self._folder / name) for name in ("home", "tmp", "testbed"))
        env = _command_environment(home=home, tmp=tmp, testbed=testbed)
        self._start([sys.executable, "-I", "-S", "-c", _AS_SUBREAPER, *argv], env)


class _Confined(_LocalShell):
    """The copy at /testbed of a file system of its own, made by bubblewrap."""

    scope = "namespace"
    control = _CONTROL

    def __init__(self, folder: Path, *, network: bool) -> None:
        super().__init__(folder)
        self._network = network

    def launch(self, argv: Sequence[str]) -> None:
        env = _command_environment(home=_HOME, tmp="/tmp", testbed=WORKDIR)
        targets = {**_FOLDERS, "control": _CONTROL}
        binds = {self._folder / name: target for name, target in targets.items()}
        options = bubblewrap_options(binds, network=self._network)
        # Handed over in a file: a command that lists processes must not read our paths.
        with os.fdopen(os.memfd_create("bwrap"), "r+b", buffering=0) as file:
            file.write(b"".join(option.encode() + b"\0" for option in options))
            file.seek(0)
            self._start(
                ["bwrap", "--args", str(file.fileno()), *argv], env, pass_fds=[file.fileno()]
            )


def bubblewrap_options(binds: Mapping[Path, str], *, network: bool) -> list[str]:
    """Return the options under which bubblewrap gives a command a file system of its own.

    Args:
        binds: folders of ours that commands may write, and where they find them.
        network: whether they share the machine's network, or have none.
    """
    argv = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    argv += [] if network else ["--unshare-net"]
    argv += ["--cap-drop", "ALL", "--tmpfs", "/"]
    for name in _SYSTEM_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    argv += ["--dev", "/dev", "--proc", "/proc"]
    for source, target in binds.items():
        argv += ["--bind", str(source), target]
    # The interpreter that runs the tests is ours, wherever it is installed.
    for prefix in sorted({sys.prefix, sys.base_prefix}):
        if Path(prefix).parts[1] not in _SYSTEM_FOLDERS:
            argv += ["--ro-bind", prefix, prefix]
    return [*argv, "--chdir", "/"]


def bubblewrap_works() -> bool:
    """Return whether bubblewrap is here and may do what it needs to."""
    if shutil.which("bwrap") is None:
        return False
    probe = ["bwrap", *bubblewrap_options({}, network=False), "true"]
    return run_command(probe, timeout_s=20).returncode == 0


class _Paths:
    """Writes the sandbox's names for its folders as the host's, and back.

    A no-op where the sandbox has a file system of its own.
    """

    def __init__(self, table: Mapping[str, Path]) -> None:
        self._table = {name: str(path) for name, path in table.items()}
        names = "|".join(re.escape(name) for name in table)
        # Whole components only: not /testbed2, not the end of ./src/tmp.
        self._pattern = re.compile(rf"(?<![\w./~-])({names})(?![\w.-])") if table else None

    def to_host(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._table[match[1]], text)

    def in_result(self, result: CommandResult) -> CommandResult:
        if self._pattern is None:
            return result
        output = result.output
        for name, path in self._table.items():
            output = output.replace(path, name)
        return CommandResult(
            output=output,
            returncode=result.returncode,
            timed_out=result.timed_out,
            dropped_bytes=result.dropped_bytes,
            wall_s=result.wall_s,
        )


def _command_environment(*, home: str, tmp: str, testbed: str) -> dict[str, str]:
    path = environment().get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {
        **COMMAND_ENVIRONMENT,
        # `python` has to be the interpreter that the repository's tests are written for: ours.
        "PATH": f"{Path(sys.executable).parent}:{path}",
        "HOME": home,
        "TMPDIR": tmp,
        "TESTBED": testbed,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Two runs of the same command have to print the same.
        "PYTHONHASHSEED": "0",
    }


def _end_leftovers(folder: Path) -> None:
    """Kill the shell recorded in `folder`, and first what it is the parent of."""
    try:
        pid, start_ticks = (folder / "shell").read_text().split()
    except (OSError, ValueError):
        return
    shell = ProcessIdentity(int(pid), int(start_ticks))
    if is_alive(shell):
        kin.kill_until_gone(lambda: kin.family([shell.pid]), spared=[shell.pid])
        kin.kill_process(shell)


def _discard(folder: Path) -> None:
    # What cannot be removed now is the next janitor's; a run must not fail for it.
    with suppress(OSError):
        remove_tree(folder)


def _raise_if_full(folder: Path) -> None:
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < 16 << 20 or disk.f_favail == 0 < disk.f_files:
        raise DiskError(
            f"the disk of {folder.parent} is full: free some space or point root at another"
        )
