"""What a sweep needs of file systems: room, files, hard links, a disk of the node's own."""

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.host.process import run_command
from pipeline.planning.disk_estimate import BYTES_A_RUN
from pipeline.planning.doctor import Check, fail, ok, warn
from pipeline.planning.estimate import Estimate
from pipeline.planning.preflight import MIN_FREE_BYTES
from pipeline.planning.problem import WORDS
from pipeline.spec.sweep import SweepSpec

MIN_SCRATCH_BYTES = 20 << 30
SHARED = frozenset({"lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "fuse.ceph", "panfs"})


def disk_checks(spec: SweepSpec, estimate: Estimate) -> Iterator[Check]:
    """Yield what there is to say about the folders that a sweep writes."""
    results = _nearest(Path(spec.results).absolute())
    yield from _room(results, estimate)
    yield from _quota(results, estimate)
    yield _links(results)
    on_node = file_system_of(results)
    if spec.cluster.kind == "slurm" and on_node in {"tmpfs", "ramfs"}:
        yield fail(
            "results folder",
            f"{results} is in this machine's memory ({on_node})",
            "results must be where all nodes can read them: results=$SCRATCH/...",
        )
    yield from _scratch(spec)
    if spec.sandbox == "apptainer":
        yield _images(spec)


def file_system_of(path: Path) -> str:
    """Return the type of the file system that `path` is on, as the kernel names it."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, fs_type, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        inside = path.is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, fs_type
    return kind


def _room(folder: Path, estimate: Estimate) -> Iterator[Check]:
    usage = os.statvfs(folder)
    free = usage.f_bavail * usage.f_frsize
    needed = MIN_FREE_BYTES + estimate.n_runs * BYTES_A_RUN
    said = f"{free / 1e9:,.0f} GB free, about {needed / 1e9:,.1f} GB needed"
    if free < needed:
        yield fail("results: space", said, "free some, or another folder: results=DIR")
    else:
        yield ok("results: space", said)
    if usage.f_files > 0 and usage.f_favail < estimate.n_files:
        yield fail(
            "results: files",
            f"{usage.f_favail:,} files left, about {estimate.n_files:,} needed",
            "remove files, or another folder: results=DIR",
        )


def _quota(folder: Path, estimate: Estimate) -> Iterator[Check]:
    """Ask Lustre for what this user may still store, where the folder is on it."""
    if shutil.which("lfs") is None or file_system_of(folder) != "lustre":
        return
    asked = ["lfs", "quota", "-q", "-u", str(os.getuid()), str(folder)]
    done = run_command(asked, timeout_s=60)
    left = quota_left(done.text) if done.returncode == 0 else None
    if left is None:
        yield warn(
            "quota", "lfs quota did not answer", "check your quota with the site's own command"
        )
        return
    kilobytes, files = left
    said = ", ".join(
        ([f"{kilobytes / 1e6:,.0f} GB"] if kilobytes is not None else [])
        + ([f"{files:,} files"] if files is not None else [])
    )
    short = (files is not None and files < estimate.n_files) or (
        kilobytes is not None and kilobytes * 1024 < MIN_FREE_BYTES + estimate.n_runs * BYTES_A_RUN
    )
    if short:
        yield fail(
            "quota",
            f"{said} left; about {estimate.n_files:,} files are needed",
            "remove files you no longer need, or ask the site for more",
        )
    else:
        yield ok("quota", f"{said or 'no limit'} left")


def quota_left(text: str) -> tuple[int | None, int | None] | None:
    """Return kilobytes and files left in `lfs quota -q`'s answer; None where it is none.

    A limit of 0 is no limit, and None. The soft limit counts: over it, writing ends after a while.
    """
    fields = text.replace("*", "").split()
    numbers = [field for field in fields if re.fullmatch(r"\d+", field)]
    if len(numbers) < 6:
        return None
    used_kb, soft_kb, hard_kb, used_files, soft_files, hard_files = map(int, numbers[:6])
    return _left(used_kb, soft_kb, hard_kb), _left(used_files, soft_files, hard_files)


def _left(used: int, soft: int, hard: int) -> int | None:
    limits = [limit for limit in (soft, hard) if limit > 0]
    return max(0, min(limits) - used) if limits else None


def _links(folder: Path) -> Check:
    """Try what claims rest on: exactly one of two hard links to a name succeeds."""
    token = secrets.token_hex(6)
    first, second = (folder / f".doctor-{token}-{n}" for n in (1, 2))
    try:
        first.touch(exist_ok=False)
        os.link(first, second)
        try:
            os.link(first, second)
        except FileExistsError:
            return ok("results: claims", f"hard links work in {file_system_of(folder)}")
        return fail(
            "results: claims",
            "a hard link replaced an existing name",
            "another folder: results=DIR",
        )
    except OSError as error:
        return fail(
            "results: claims", f"no hard links in {folder}: {error}", "another folder: results=DIR"
        )
    finally:
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)


def _scratch(spec: SweepSpec) -> Iterator[Check]:
    folder = _nearest(Path(spec.cluster.scratch or tempfile.gettempdir()))
    kind = file_system_of(folder)
    free = shutil.disk_usage(folder).free
    said = f"{folder} ({kind}), {free / 1e9:,.0f} GB free"
    if not os.access(folder, os.W_OK):
        yield fail("scratch", f"{folder} cannot be written", "cluster.scratch=DIR")
    elif kind in SHARED:
        yield warn("scratch", said, "use a node-local disk for sandboxes: cluster.scratch=DIR")
    elif spec.sandbox == "apptainer" and free < MIN_SCRATCH_BYTES:
        yield warn("scratch", said, "images are extracted there, some GB each: cluster.scratch=DIR")
    else:
        yield ok("scratch", said)


def _images(spec: SweepSpec) -> Check:
    folder = spec.cluster.images
    stage = f"python -m pipeline.stage images --sweep {WORDS}"
    if folder is None:
        return fail("images", "no folder named", "cluster.images=DIR")
    n_images = len(list(Path(folder).glob("*.sif"))) if Path(folder).is_dir() else 0
    if n_images == 0:
        return fail("images", f"none in {folder}", f"stage them: {stage}")
    return ok("images", f"{n_images:,} in {folder}; launch checks that none is missing")


def _nearest(path: Path) -> Path:
    """Return `path`, or the nearest folder above it that exists."""
    while not path.is_dir():
        path = path.parent
    return path
