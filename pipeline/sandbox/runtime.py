"""The container runtime's command line: Apptainer's, or Singularity's.

Owns which words start, unpack and probe containers, and the three ways to a writable root. The
first that works on a node is used: an overlay mounted by the kernel, one mounted by
`fuse-overlayfs`, and, where user namespaces are off, a private copy of the image. The overlays are
mounted by us and not by the runtime's `--overlay`, which leaves out the option without which a user
cannot remove a folder of the image. Starts nothing that lasts: see `apptainer.py`.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.records.failure import SandboxError
from pipeline.sandbox import folders

CONTROL = "/.sandbox"
"""Where a container finds what is ours: its commands' environment and pipes."""
LAYERS = ("upper", "work", "merged")
"""Folders of a sandbox that its root is mounted from."""

# Writes a file and removes a folder of the image, which takes more than adding to it.
_PROBE = "echo 1 >/etc/sandbox-probe && mkdir -p /opt /srv && mv /opt /sandbox-probe && rm -r /srv"
_EXTRACT_TIMEOUT_S = 1800.0
_PROBE_TIMEOUT_S = 60.0
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
            folder = folders.create(scratch, LAYERS)
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
        (root / CONTROL.strip("/")).mkdir(exist_ok=True)


def says_no_bash(complaint: str) -> bool:
    """Return whether a runtime complains that an image lacks bash."""
    found = re.search(r'"?bash"?:? (?:executable file )?(?:not found|No such file)', complaint)
    return found is not None


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
