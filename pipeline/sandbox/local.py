"""Sandboxes without images: a temporary copy of the repository on this node's own disk.

Owns the copy and how far commands are confined to it. With bubblewrap the copy lies at the row's
working directory in a file system of its own, where commands see the system's programs read-only
and nothing else of the machine. Without it they run as this user, in the copy; `confined` says
which it is, and callers decide whom they let run unconfined. Then that directory and `/tmp` in
commands, paths and outputs stand for the copy's own folders, so that both forms read the same.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.protocols import Purpose
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders
from pipeline.sandbox.box import Box, Paths
from pipeline.sandbox.limits import COMMAND_ENVIRONMENT, NO_NETWORK, Limits, has_network, workdir_of
from pipeline.sandbox.shell import GroupShell

Materialise = Callable[[Mapping[str, Any], Path], None]
"""Fills an empty folder with the repository of a benchmark row."""

_CONTROL = "/.sandbox"
_HOME = "/home/sandbox"
_FOLDERS = ("testbed", "tmp", "home")
_SHARED_MEMORY = "shm"
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
        self._network = {**NO_NETWORK, **(network or {})}
        works = confine is not False and bubblewrap_works()
        if confine and not works:
            raise SandboxError(
                "bubblewrap does not work here: install it, or allow user namespaces, "
                "or do not ask for confined local sandboxes"
            )
        self.confined = works

    def start(self, row: Mapping[str, Any], *, purpose: Purpose) -> Box:
        """Return a fresh copy of the row's repository, ready for commands.

        Raises:
            SandboxError: it did not start.
            DiskError: no room for the copy.
        """
        workdir = workdir_of(row)
        folder = folders.create(self._root, (*_FOLDERS, _SHARED_MEMORY, "control"))
        try:
            self._materialise(row, folder / "testbed")
        except OSError as error:
            folders.discard(folder)
            raise folders.failed(f"cannot copy the repository into {folder}", error) from error
        except BaseException:
            folders.discard(folder)
            raise
        if self.confined:
            shell: GroupShell = _Confined(
                folder,
                workdir=workdir,
                network=has_network(row, purpose, allowed=self._network[purpose]),
            )
            paths = None
        else:
            shell = _Plain(folder)
            paths = Paths({target: folder / name for name, target in _targets(workdir).items()})
        box = Box(
            shell,
            workdir=workdir,
            limits=self._limits,
            paths=paths,
            mend_locale=purpose == "rollout",
        )
        box.open()
        return box

    def janitor(self) -> int:
        """Kill and remove the sandboxes of owners that are gone; return how many there were."""
        return folders.sweep(self._root)

    def digest(self, row: Mapping[str, Any]) -> str | None:  # noqa: ARG002 (the protocol's)
        """Return None: there is no image."""
        return None


class _Plain(GroupShell):
    """The copy as this user sees it."""

    scope = "tree"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.control = str(folder / "control")

    def launch(self, argv: Sequence[str]) -> None:
        """Start `argv` in the copy."""
        home, tmp, testbed = (str(self.folder / name) for name in ("home", "tmp", "testbed"))
        env = _command_environment(home=home, tmp=tmp, testbed=testbed)
        self.start([sys.executable, "-I", "-S", "-c", _AS_SUBREAPER, *argv], env)


class _Confined(GroupShell):
    """The copy in a file system of its own, made by bubblewrap."""

    scope = "namespace"
    control = _CONTROL

    def __init__(self, folder: Path, *, workdir: str, network: bool) -> None:
        super().__init__(folder)
        self._workdir, self._network = workdir, network

    def launch(self, argv: Sequence[str]) -> None:
        """Start `argv` in the copy."""
        env = _command_environment(home=_HOME, tmp="/tmp", testbed=self._workdir)
        targets = {**_targets(self._workdir), _SHARED_MEMORY: "/dev/shm", "control": _CONTROL}
        binds = {self.folder / name: target for name, target in targets.items()}
        options = bubblewrap_options(binds, network=self._network)
        # Handed over in a file: a command that lists processes must not read our paths.
        with os.fdopen(os.memfd_create("bwrap"), "r+b", buffering=0) as file:
            file.write(b"".join(option.encode() + b"\0" for option in options))
            file.seek(0)
            self.start(
                ["bwrap", "--args", str(file.fileno()), *argv], env, pass_fds=[file.fileno()]
            )


def _targets(workdir: str) -> dict[str, str]:
    """Return where commands find the sandbox's folders."""
    return {"testbed": workdir, "tmp": "/tmp", "home": _HOME}


def bubblewrap_options(binds: Mapping[Path, str], *, network: bool) -> list[str]:
    """Return the options under which bubblewrap gives a command a file system of its own.

    Args:
        binds: folders of ours that commands may write, and where they find them.
        network: whether they share the machine's network, or have none.
    """
    argv = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    argv += [] if network else ["--unshare-net"]
    if os.geteuid() != 0:
        # As in a container, and so that runs of two people print the same.
        argv += ["--unshare-user", "--uid", "0", "--gid", "0"]
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
    # Both are in memory, which no limit of ours covers.
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def bubblewrap_works() -> bool:
    """Return whether bubblewrap is here and may do what it needs to."""
    if shutil.which("bwrap") is None:
        return False
    probe = ["bwrap", *bubblewrap_options({}, network=False), "true"]
    return run_command(probe, timeout_s=20).returncode == 0


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
