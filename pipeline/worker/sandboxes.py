"""The sandboxes of one worker: which kind a sweep wants, and which of them are open.

Owns the choice by `sandbox=` and by benchmark, and the list of open sandboxes, so that a worker
that has to stop can close them under its runs. How a sandbox isolates is `pipeline.sandbox`.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.benchmarks.registry import format_of
from pipeline.benchmarks.rows import image_reference
from pipeline.protocols import Purpose, Sandbox, SandboxFactory
from pipeline.records.failure import SandboxError
from pipeline.sandbox.limits import Limits
from pipeline.spec.sweep import SweepSpec

FOLDER = "planprune-sandboxes"
"""Below the site's scratch; the user's id is added, since others of a node may share that."""


def sandbox_factory(spec: SweepSpec, *, trusted: bool) -> SandboxFactory:
    """Return what starts the sandboxes that `spec` asks for on this node.

    Args:
        spec: the sweep.
        trusted: True where no model writes the commands (grading aside, that is `sim`).

    Raises:
        SandboxError: commands of a model would run unconfined, or the kind is unknown here.
    """
    site = spec.cluster
    root = Path(site.scratch or tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"
    memory = site.sandbox_memory_mb
    limits = Limits(
        output_bytes=spec.output_limit_bytes,
        memory_bytes=None if memory is None else memory << 20,
        processes=site.pids_limit,
    )
    network: dict[Purpose, bool] = {"rollout": site.network_rollout, "grade": site.network_grade}
    if spec.sandbox == "apptainer":
        return _containers(spec, root, limits, network)
    from pipeline.sandbox.local import LocalSandboxes

    checkout = format_of(spec.benchmark).checkout or _only_in_an_image
    factory = LocalSandboxes(root, checkout, limits=limits, network=network)
    if not (factory.confined or trusted or spec.allow_unsandboxed):
        raise SandboxError(
            "a model's commands would run unconfined on this machine: install bubblewrap, use "
            "sandbox=apptainer, or say allow_unsandboxed=true"
        )
    return factory


def _containers(
    spec: SweepSpec, root: Path, limits: Limits, network: Mapping[Purpose, bool]
) -> SandboxFactory:
    if not spec.cluster.images:
        raise SandboxError(
            "sandbox=apptainer needs the folder of staged images: say cluster.images=DIR"
        )
    from pipeline.sandbox.apptainer import ApptainerSandboxes
    from pipeline.sandbox.images import ImageStore

    return ApptainerSandboxes(
        root,
        ImageStore(Path(spec.cluster.images), image_reference),
        checkout=format_of(spec.benchmark).checkout,
        limits=limits,
        network=network,
    )


class OpenSandboxes:
    """The sandboxes that are open now. Thread-safe."""

    def __init__(self, factory: SandboxFactory) -> None:
        self.factory = factory
        self._lock = threading.Lock()
        self._open: set[Sandbox] = set()

    @contextlib.contextmanager
    def start(self, row: Mapping[str, Any], purpose: Purpose) -> Iterator[Sandbox]:
        """Give a fresh sandbox that is stopped at the end, whatever happens.

        Raises:
            SandboxError: it did not start, or did not stop.
            DiskError: no room for it.
        """
        sandbox = self.factory.start(row, purpose=purpose)
        with self._lock:
            self._open.add(sandbox)
        try:
            yield sandbox
        finally:
            with self._lock:
                self._open.discard(sandbox)
            sandbox.stop()

    def stop_all(self) -> None:
        """Stop every open sandbox; commands that run in one fail as infrastructure."""
        with self._lock:
            sandboxes = list(self._open)
        for sandbox in sandboxes:
            with contextlib.suppress(SandboxError):
                sandbox.stop()


def _only_in_an_image(row: Mapping[str, Any], _target: Path) -> None:
    raise SandboxError(
        f"{row['instance_id']}: its repository is only in an image; use sandbox=apptainer"
    )
