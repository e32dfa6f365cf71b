"""Sandboxes in real containers, by Apptainer (or Singularity) and nothing else.

Owns the runtime's command line. A container is one `exec` of the runtime that runs the sandbox's
resident shell, over layers on node-local disk: no instance to lose, no runtime start-up per
command, no tmpfs of 64 MB. Its process namespace ends with it. Neither root nor `/etc/subuid` is
needed; what commands write belongs to us on the host, whatever they chown, and can be removed.

Three ways to a writable root are known, and the first that works on a node is used: an overlay
mounted by the kernel, one mounted by `fuse-overlayfs`, and, where user namespaces are off, a
private copy of the image. The overlays are mounted by us and not by the runtime's `--overlay`,
which leaves out the option without which a user cannot remove a folder of the image. Commands
are root of a user namespace that maps only us, as the official images expect.
"""

import os
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.protocols import Purpose
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders
from pipeline.sandbox.box import Box
from pipeline.sandbox.limits import COMMAND_ENVIRONMENT, NO_NETWORK, WORKDIR, Limits
from pipeline.sandbox.shell import GroupShell
from pipeline.sandbox.templates import Templates

_CONTROL = "/.sandbox"
_VARIABLES = {**COMMAND_ENVIRONMENT, "HOME": "/root", "SANDBOX_PROFILE": "/root/.bashrc"}
_LAYERS = ("upper", "work", "merged")
# Writes a file and removes a folder of the image, which takes more than adding to it.
_PROBE = "echo 1 >/etc/sandbox-probe && mkdir -p /opt && mv /opt /sandbox-probe && rmdir /srv"
_EXTRACT_TIMEOUT_S = 1800.0
_PROBE_TIMEOUT_S = 60.0
_KEEP_FREE_BYTES = 20 << 30
_ISOLATED = (
    "--cleanenv",
    "--containall",
    "--no-home",
    "--no-mount",
    "home,cwd,bind-paths,hostfs",
    "--pwd",
    "/",
)
"""Also keeps a site's own /opt, or whatever else it binds, from hiding the image's."""


_FINISH_ROOT = 'mkdir -p "$2/merged/.sandbox" || exit; shift 2; exec "$@"'
_OVERLAY_OPTIONS = '"lowerdir=$1,upperdir=$2/upper,workdir=$2/work'


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A way to give a container its writable root."""

    name: str
    mount: str
    """Shell lines, run as root of a user namespace of our own, that mount `$2/merged` over the
    extracted image `$1` and then run what follows; empty: the image is copied instead."""

    @property
    def copies(self) -> bool:
        """Whether the image is copied for each sandbox, instead of overlaid."""
        return not self.mount


LAYOUTS = (
    Layout(
        name="overlay",
        # Without userxattr no folder of the image can be removed or renamed (EIO).
        mount=f'mount -t overlay overlay -o {_OVERLAY_OPTIONS},userxattr" "$2/merged" || exit; '
        + _FINISH_ROOT,
    ),
    Layout(
        name="fuse-overlay",
        # In the foreground: the daemon is then ours to end, and none is left behind.
        mount=f'fuse-overlayfs -f -o {_OVERLAY_OPTIONS}" "$2/merged" & '
        'for _ in {1..500}; do mountpoint -q "$2/merged" && break; sleep 0.02; done; '
        'mountpoint -q "$2/merged" || exit; ' + _FINISH_ROOT,
    ),
    Layout(name="copy", mount=""),
)


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
        template, held = self._templates.hold(sif, self._images.sif_digest(row))
        try:
            layout = self._chosen_layout(template)
            folder = folders.create(self._root, (*_BINDS, *_LAYERS))
        except BaseException:
            os.close(held)
            raise
        shell = _Container(folder, self._runtime, held=held)
        box = Box(shell, limits=self._limits)
        try:
            self._fill(shell, row, template, layout, purpose)
            shell.prepare(
                template,
                layout,
                network=self._network[purpose],
                with_repository=self._checkout is not None,
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
        variables = dict(_VARIABLES)
        if purpose == "rollout":
            # The arms of a pair should differ by their arm only. Grading stays as the official
            # harness has it.
            variables["PYTHONHASHSEED"] = "0"
        if self._checkout is not None:
            self._checkout(row, shell.folder / "testbed")
            variables["PYTHONDONTWRITEBYTECODE"] = "1"
        _write_environment(shell.folder / "control" / "environment", variables)

    def janitor(self) -> int:
        """Kill and remove the containers of owners that are gone; return how many there were."""
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


class Runtime:
    """The container runtime of this node."""

    def __init__(self, scratch: Path) -> None:
        """Find it.

        Raises:
            SandboxError: neither apptainer nor singularity is on PATH.
        """
        self.path = find_runtime()
        self.env = runtime_environment(environment(), scratch)
        self.env["APPTAINER_CONFIGDIR"] = str(scratch / "runtime-config")

    def exec_argv(
        self,
        template: Path,
        folder: Path,
        layout: Layout,
        *,
        binds: Mapping[Path, str],
        network: bool,
    ) -> list[str]:
        """Return the command that runs what follows it in a container.

        Args:
            template: the extracted image.
            folder: the sandbox's; has `upper`, `work` and `merged`, or a copy of the image in
                `merged`.
            layout: how its root becomes writable.
            binds: folders of ours, and where commands find them.
            network: whether commands share the machine's network, or have none.
        """
        argv = [] if layout.copies else ["unshare", "--map-root-user", "--mount"]
        if layout.mount:
            argv += ["bash", "-c", layout.mount, "mount", str(template), str(folder)]
        argv += [self.path, "--quiet", "exec", *_ISOLATED, "--writable"]
        argv += [] if network else ["--net", "--network", "none"]
        for source, target in binds.items():
            argv += ["--bind", f"{source}:{target}"]
        return [*argv, str(folder / "merged")]

    def first_that_works(
        self, candidates: Sequence[Layout], template: Path, scratch: Path
    ) -> Layout:
        """Return the first layout in which a container can write its own root.

        Raises:
            SandboxError: none; the message has what each said.
        """
        complaints = []
        for layout in candidates:
            folder = folders.create(scratch, _LAYERS)
            try:
                if layout.copies:
                    self.copy(template, folder / "merged")
                argv = self.exec_argv(template, folder, layout, binds={}, network=True)
                probe = [*argv, "bash", "-c", _PROBE]
                done = run_command(probe, timeout_s=_PROBE_TIMEOUT_S, env=self.env, cwd=Path("/"))
            finally:
                folders.discard(folder)
            if done.returncode == 0:
                return layout
            complaints.append(f"{layout.name}: {done.text.strip()[-500:]}")
        raise SandboxError("no container starts on this node; " + "; ".join(complaints))

    def extract(self, image: Path, folder: Path) -> None:
        """Unpack `image` into a new `folder`.

        Raises:
            SandboxError: it is no image, or the runtime cannot unpack it.
        """
        # Root of a machine that is a container itself may lack capabilities that the runtime
        # wants; root of a namespace has them all.
        argv = ["unshare", "--map-root-user"] if os.geteuid() == 0 else []
        argv += [self.path, "build", "--sandbox", "--fix-perms", str(folder), str(image)]
        done = run_command(argv, timeout_s=_EXTRACT_TIMEOUT_S, env=self.env, cwd=Path("/"))
        if done.returncode:
            folders.raise_if_full(folder.parent)
            raise SandboxError(f"cannot extract {image}: {done.text.strip()[-1000:]}")

    def copy(self, template: Path, root: Path) -> None:
        """Copy an extracted image, with what a container without overlay needs to be there.

        Raises:
            SandboxError: it cannot be copied.
        """
        argv = ["cp", "-aT", "--reflink=auto", "--", str(template), str(root)]
        done = run_command(argv, timeout_s=_EXTRACT_TIMEOUT_S)
        if done.returncode:
            folders.raise_if_full(root.parent)
            raise SandboxError(f"cannot copy {template}: {done.text.strip()[-1000:]}")
        (root / _CONTROL.strip("/")).mkdir(exist_ok=True)


_BINDS = {
    "control": _CONTROL,
    "tmp": "/tmp",
    "var-tmp": "/var/tmp",
    "testbed": WORKDIR,
}
"""The folders of a sandbox, and where commands find them."""


class _Container(GroupShell):
    """One container: an `exec` of the runtime that lasts as long as its resident shell."""

    scope: Literal["namespace", "tree"] = "namespace"
    control = _CONTROL

    def __init__(self, folder: Path, runtime: Runtime, *, held: int) -> None:
        super().__init__(folder)
        self._runtime = runtime
        self._held: int | None = held
        self._argv: list[str] = []

    def prepare(
        self, template: Path, layout: Layout, *, network: bool, with_repository: bool
    ) -> None:
        """Settle how the container is started."""
        binds = {
            self.folder / name: target
            for name, target in _BINDS.items()
            if target != WORKDIR or with_repository
        }
        for name in ("tmp", "var-tmp"):
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


def find_runtime() -> str:
    """Return the container runtime's path.

    Raises:
        SandboxError: there is none.
    """
    found = shutil.which("apptainer") or shutil.which("singularity")
    if found is None:
        raise SandboxError(
            "neither apptainer nor singularity is on PATH: load the site's module, or install "
            "Apptainer (docs/containers.md)"
        )
    return found


def runtime_environment(env: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return what the runtime may see of `env`.

    Its variables that bind folders or set variables inside are dropped, since both would reach
    into every sandbox. Its caches go below `scratch`, where they are made if absent,
    and never to a home folder with a quota.
    """
    kept = {
        name: value
        for name, value in env.items()
        if not name.startswith(("APPTAINERENV_", "SINGULARITYENV_"))
        and name.removeprefix("APPTAINER_").removeprefix("SINGULARITY_") not in {"BIND", "BINDPATH"}
    }
    for name in ("APPTAINER", "SINGULARITY"):
        kept.setdefault(f"{name}_CACHEDIR", str(scratch / "runtime-cache"))
        kept.setdefault(f"{name}_TMPDIR", str(scratch / "runtime-tmp"))
        for purpose in ("CACHEDIR", "TMPDIR"):
            Path(kept[f"{name}_{purpose}"]).mkdir(parents=True, exist_ok=True)
    return kept


def _write_environment(path: Path, variables: Mapping[str, str]) -> None:
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    # What the runtime tells of itself is no business of a command's, and names paths of ours.
    lines.append("unset ${!APPTAINER_*} ${!SINGULARITY_*} PROMPT_COMMAND PS1 LD_LIBRARY_PATH\n")
    path.write_text("".join(lines))
