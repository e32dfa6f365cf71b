"""Sandboxes in real containers, by Apptainer (or Singularity) and nothing else.

A container is one `exec` of the runtime that runs the sandbox's
resident shell, over layers on node-local disk: no instance to lose, no runtime start-up per
command, no tmpfs of 64 MB. Its process namespace ends with it. Neither root nor `/etc/subuid` is
needed; what commands write belongs to us on the host, whatever they chown, and can be removed.
Commands are root of a user namespace that maps only us, as the official images expect.

Owns the life of such a sandbox; the runtime's command line is in `runtime.py`.
"""

import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.protocols import Purpose
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders
from pipeline.sandbox.box import Box
from pipeline.sandbox.limits import (
    COMMAND_ENVIRONMENT,
    NO_NETWORK,
    Limits,
    has_network,
    variables_of,
    workdir_of,
)
from pipeline.sandbox.runtime import CONTROL, LAYERS, LAYOUTS, Layout, Runtime, says_no_bash
from pipeline.sandbox.shell import GroupShell
from pipeline.sandbox.templates import Templates

_VARIABLES = {**COMMAND_ENVIRONMENT, "HOME": "/root", "SANDBOX_PROFILE": "/root/.bashrc"}
_KEEP_FREE_BYTES = 20 << 30

Checkout = Callable[[Mapping[str, Any], Path], None]


class Images(Protocol):
    """Finds the image file of a benchmark row."""

    def sif_for(self, row: Mapping[str, Any]) -> Path:
        """Return the image's file."""
        ...

    def sif_digest(self, row: Mapping[str, Any]) -> str:
        """Return the digest of that file: what an extraction of it is filed under."""
        ...

    def digest(self, row: Mapping[str, Any]) -> str | None:
        """Return the digest by which the image's registry knows it, if that is known."""
        ...


class ApptainerSandboxes:
    """Starts sandboxes that are containers on this node."""

    confined = True

    def __init__(
        self,
        root: Path,
        images: Images,
        *,
        checkout: Checkout | None = None,
        limits: Limits | None = None,
        network: Mapping[Purpose, bool] | None = None,
        layout: str | None = None,
        keep_free_bytes: int = _KEEP_FREE_BYTES,
    ) -> None:
        """Prepare a factory; nothing is started or written yet.

        Args:
            root: a folder on a node-local disk, made if absent.
            images: where the rows' images are.
            checkout: fills a folder with a row's repository, for images that hold none.
            limits: bounds on each sandbox.
            network: whether commands reach the network.
            layout: one of `LAYOUTS` by name; None: the first that works here.
            keep_free_bytes: of the node's disk, by dropping unused extracted images.

        Raises:
            SandboxError: there is no container runtime here, no such layout, or `root` has a
                character that mount options cannot hold.
        """
        if set(str(root)) & set(":, \\"):
            raise SandboxError(
                f"{root}: a path to mount may have no colon, comma, space or backslash"
            )
        self._root = root
        self._images = images
        self._checkout = checkout
        self._limits = limits or Limits()
        self._network = {**NO_NETWORK, **(network or {})}
        self._runtime = Runtime(root)
        self._templates = Templates(
            root / "templates", self._runtime.extract, keep_free_bytes=keep_free_bytes
        )
        self._candidates = [each for each in LAYOUTS if layout in (None, each.name)]
        if not self._candidates:
            raise SandboxError(f"no layout {layout}; there are {[each.name for each in LAYOUTS]}")
        self._layout: Layout | None = None
        self._probing = threading.Lock()

    def start(self, row: Mapping[str, Any], *, purpose: Purpose) -> Box:
        """Return a fresh container of the row's image, ready for commands.

        Raises:
            SandboxError: the image is missing or the container did not start.
            DiskError: no room.
        """
        sif = self._images.sif_for(row)
        try:
            return self._start(row, sif, purpose)
        except SandboxError as error:
            if says_no_bash(str(error)):
                raise SandboxError(
                    f"{sif}: the image has no bash, in which every command and every evaluation "
                    "script runs: install it in the image and stage that"
                ) from error
            raise SandboxError(f"{sif}: {error}") from error

    def _start(self, row: Mapping[str, Any], sif: Path, purpose: Purpose) -> Box:
        template, held = self._templates.hold(sif, self._images.sif_digest(row))
        try:
            layout = self._chosen_layout(template)
            folder = folders.create(self._root, (*_BINDS, _REPOSITORY, *LAYERS))
        except BaseException:
            os.close(held)
            raise
        shell = _Container(folder, self._runtime, held=held)
        box = Box(
            shell,
            workdir=workdir_of(row),
            limits=self._limits,
            # Tests are graded in the image's own locale, whatever it prints.
            mend_locale=purpose == "rollout",
        )
        try:
            self._fill(shell, row, template, layout, purpose)
            shell.prepare(
                template,
                layout,
                network=has_network(row, purpose, allowed=self._network[purpose]),
                repository=None if self._checkout is None else workdir_of(row),
            )
        except BaseException as error:
            box.stop()
            if isinstance(error, OSError):
                raise folders.failed(f"cannot prepare {folder}", error) from error
            raise
        box.open()
        return box

    def _fill(
        self,
        shell: "_Container",
        row: Mapping[str, Any],
        template: Path,
        layout: Layout,
        purpose: Purpose,
    ) -> None:
        if layout.copies:
            self._runtime.copy(template, shell.folder / "merged")
        variables = {**_VARIABLES, **variables_of(row)}
        if purpose == "rollout":
            # The arms of a pair should differ by their arm only. Grading stays as the official
            # harness has it.
            variables["PYTHONHASHSEED"] = "0"
        if self._checkout is not None:
            self._checkout(row, shell.folder / _REPOSITORY)
            variables |= {"PYTHONDONTWRITEBYTECODE": "1", "TESTBED": workdir_of(row)}
            # Something to mount it on, where the image has no such folder.
            root = shell.folder / ("merged" if layout.copies else "upper")
            (root / workdir_of(row).lstrip("/")).mkdir(parents=True, exist_ok=True)
        _write_environment(shell.folder / "control" / "environment", variables)

    def janitor(self) -> int:
        """Kill and remove the containers of owners that are gone; return how many there were."""
        self._templates.sweep()
        return folders.sweep(self._root)

    def digest(self, row: Mapping[str, Any]) -> str | None:
        """Return the digest of the row's image."""
        return self._images.digest(row)

    def _chosen_layout(self, template: Path) -> Layout:
        with self._probing:
            if self._layout is None:
                self._layout = self._runtime.first_that_works(
                    self._candidates, template, self._root
                )
            return self._layout


_BINDS = {
    "control": CONTROL,
    "tmp": "/tmp",
    "var-tmp": "/var/tmp",
    # Not in memory, which no limit of ours covers.
    "shm": "/dev/shm",
}
"""The folders of a sandbox, and where commands find them."""

_REPOSITORY = "testbed"
"""The folder that holds a repository which is not in the image."""


class _Container(GroupShell):
    """One container: an `exec` of the runtime that lasts as long as its resident shell."""

    scope: Literal["namespace", "tree"] = "namespace"
    control = CONTROL

    def __init__(self, folder: Path, runtime: Runtime, *, held: int) -> None:
        super().__init__(folder)
        self._runtime = runtime
        self._held: int | None = held
        self._argv: list[str] = []

    def prepare(
        self, template: Path, layout: Layout, *, network: bool, repository: str | None
    ) -> None:
        """Settle how the container is started; `repository` is where ours is mounted, if any."""
        binds = {self.folder / name: target for name, target in _BINDS.items()}
        if repository is not None:
            binds[self.folder / _REPOSITORY] = repository
        for name in ("tmp", "var-tmp", "shm"):
            (self.folder / name).chmod(0o1777)
        self._argv = self._runtime.exec_argv(
            template, self.folder, layout, binds=binds, network=network
        )

    def launch(self, argv: Sequence[str]) -> None:
        """Start `argv` in the container."""
        self.start([*self._argv, *argv], self._runtime.env)

    def finish(self) -> None:
        """Kill every process, for good, and let go of the extracted image."""
        try:
            super().finish()
        finally:
            if self._held is not None:
                os.close(self._held)
                self._held = None


def _write_environment(path: Path, variables: Mapping[str, str]) -> None:
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    # What the runtime tells of itself is no business of a command's, and names paths of ours.
    lines.append("unset ${!APPTAINER_*} ${!SINGULARITY_*} PROMPT_COMMAND PS1 LD_LIBRARY_PATH\n")
    path.write_text("".join(lines))
