"""A sandbox's shell as a child group of this process.

Owns what every kind of sandbox has in common here: starting the group, recording it for the
janitor, ending it. The kinds differ in the command that they start.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pipeline.host.process import ChildGroup, start_group
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders, process_tree

_EXIT_S = 5.0


class GroupShell(ABC):
    """The process group that holds a sandbox: its descendants are the sandbox's processes."""

    scope: Literal["namespace", "tree"]
    control: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: ChildGroup | None = None
        self._lock = threading.Lock()
        self._finished = False

    @abstractmethod
    def launch(self, argv: Sequence[str]) -> None:
        """Start `argv` inside; see `pipeline.sandbox.resident.Shell`."""

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int] = ()
    ) -> None:
        """Start the group, after ending one that was started before.

        Raises:
            SandboxError: the program is missing, or the sandbox was stopped meanwhile.
            DiskError: no room for its log.
        """
        log = self.folder / "shell.log"
        with self._lock:
            if self._finished:
                raise SandboxError("this sandbox was stopped")
            self._end()
            try:
                self._child = start_group(argv, env=env, cwd=Path("/"), log=log, pass_fds=pass_fds)
                if self._child.identity is not None:
                    folders.record_shell(self.folder, self._child.identity)
            except OSError as error:
                raise folders.failed(f"cannot start {argv[0]}", error) from error

    def ready(self) -> None:
        """Record what the janitor needs to find the sandbox's processes by.

        Raises:
            DiskError: no room for it.
        """
        if self.scope != "namespace":
            return
        try:
            folders.record_namespace(self.folder, process_tree.namespace_of(self.roots()))
        except OSError as error:
            raise folders.failed(f"cannot write in {self.folder}", error) from error

    def roots(self) -> Sequence[int]:
        """Return the ids of the processes whose descendants the sandbox's are."""
        child = self._child
        return () if child is None else (child.pid,)

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._finished

    def alive(self) -> bool:
        """Return whether the group's leader runs."""
        child = self._child
        return child is not None and child.alive()

    def log_tail(self) -> str:
        """Return the end of what the group wrote besides its commands' output."""
        with suppress(OSError):
            return (self.folder / "shell.log").read_text(errors="replace")[-2000:].strip()
        return ""

    def finish(self) -> None:
        """Kill every process, for good: any thread may call it, also while a command runs.

        Raises:
            SandboxError: one survives.
        """
        with self._lock:
            self._finished = True
            self._end()

    def _end(self) -> None:
        """Kill every process, those that the others hang on last."""
        if self._child is None:
            return
        roots = (self._child.pid,)
        gone = process_tree.kill_until_gone(lambda: process_tree.family(roots), spared=roots)
        # A container runtime takes its mounts down once nothing runs in them, if it is let.
        self._child.wait(_EXIT_S if self.scope == "namespace" else 0)
        if not self._child.stop(grace_s=0) or not gone:
            raise SandboxError(f"processes of {self.folder} survive SIGKILL: look at this node")
        self._child = None
