"""The sandbox that commands, uploads and downloads go to, whatever holds it.

Owns the `Sandbox` protocol's methods over a resident shell. Knows neither bubblewrap nor
containers.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.protocols import CommandResult
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders, transfer
from pipeline.sandbox.control import ControlFolder
from pipeline.sandbox.limits import Limits
from pipeline.sandbox.resident import Resident
from pipeline.sandbox.shell import GroupShell
from pipeline.sandbox.stream import unsendable

CANNOT_RUN = 126
"""Return code of a command that was not run, as a shell has it."""


class Paths:
    """Writes the sandbox's names for its folders as the host's, and back.

    A no-op where the sandbox has a file system of its own.
    """

    def __init__(self, table: Mapping[str, Path]) -> None:
        self._table = {name: str(path) for name, path in table.items()}
        names = "|".join(re.escape(name) for name in table)
        # Whole components only: not /testbed2, not the end of ./src/tmp.
        self._pattern = re.compile(rf"(?<![\w./~-])({names})(?![\w.-])") if table else None

    def to_host(self, text: str) -> str:
        """Return `text` with the host's names."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._table[match[1]], text)

    def in_result(self, result: CommandResult) -> CommandResult:
        """Return `result` with the sandbox's names in its output."""
        if self._pattern is None:
            return result
        output, whole = result.output, result.whole
        for name, path in self._table.items():
            output = output.replace(path, name)
            whole = None if whole is None else whole.replace(path.encode(), name.encode())
        return replace(result, output=output, whole=whole)


class Box:
    """A started sandbox; see `pipeline.protocols.Sandbox`."""

    def __init__(
        self,
        shell: GroupShell,
        *,
        workdir: str,
        limits: Limits,
        paths: Paths | None = None,
        mend_locale: bool = False,
    ) -> None:
        self.workdir = workdir
        self._folder = shell.folder
        self._control = ControlFolder(shell.folder / "control")
        self._shell = shell
        self._paths = paths or Paths({})
        self._inner_workdir = self._paths.to_host(workdir)
        self._resident = Resident(self._control, shell, workdir=self._inner_workdir, limits=limits)
        self._mend_locale = mend_locale
        self._stopped = False

    def open(self) -> None:
        """Start the shell; without success nothing of the sandbox is left.

        Raises:
            SandboxError: it did not start, or cannot be kept from printing by itself.
            DiskError: no room.
        """
        try:
            self._resident.start()
            self._resident.silence(mend_locale=self._mend_locale)
        except BaseException:
            self.stop()
            raise

    def execute(
        self, command: str, *, timeout_s: float, whole_after: bytes | None = None
    ) -> CommandResult:
        """Run `command` with bash in `workdir`; at the time limit the whole tree is killed."""
        self._require_open()
        if (reason := unsendable(command)) is not None:
            return CommandResult(output=f"[not run: {reason}]\n", returncode=CANNOT_RUN)
        result = self._resident.execute(
            self._paths.to_host(command), timeout_s=timeout_s, whole_after=whole_after
        )
        if result.returncode and "No space left on device" in result.output:
            folders.raise_if_full(self._folder)
        return self._paths.in_result(result)

    def upload(self, data: bytes, path: str) -> None:
        """Write `data` to `path`; a relative path is under `workdir`."""
        self._require_open()
        transfer.upload(
            self._resident,
            self._control,
            self._shell.control,
            data=data,
            path=self._paths.to_host(path),
            workdir=self._inner_workdir,
        )

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the file at `path`; `FileNotFoundError` if absent."""
        self._require_open()
        return transfer.download(
            self._resident,
            self._control,
            self._shell.control,
            path=self._paths.to_host(path),
            limit_bytes=limit_bytes,
            workdir=self._inner_workdir,
        )

    def stop(self) -> None:
        """Kill every process of the sandbox and remove its files.

        May be called twice, and while a command runs: that command raises `SandboxError`.
        """
        if self._stopped:
            return
        self._stopped = True
        try:
            self._shell.finish()
        finally:
            self._resident.close()
        folders.discard(self._folder)

    def _require_open(self) -> None:
        if self._stopped:
            raise SandboxError("this sandbox was stopped")
