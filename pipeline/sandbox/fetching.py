"""Making one image file: from where the image comes to a whole, checked file in the store.

Owns the runtime's part of staging, its caches and temporary files, and what is left of calls that
were killed. An image is in the store entirely or not at all: its record is written last. How many
are made at a time, and how often one is tried, is `pipeline.sandbox.staging`'s.
"""

import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.host.environment import environment
from pipeline.host.files import remove_tree
from pipeline.host.process import ProcessIdentity, is_alive, process_identity, start_group
from pipeline.records.failure import SandboxError
from pipeline.sandbox.images import ImageRecord, ImageStore, file_stem, sha256_of
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.registry import Registry, RegistryError
from pipeline.sandbox.runtime import find_runtime, runtime_environment

_PART = ".part"
_ABANDONED_S = 86_400.0
"""Of another machine's unfinished files, after which nobody can be at them: far above the limit
for one image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchOptions:
    """How an image is fetched."""

    authfile: Path | None = None
    """In the form of Docker's `config.json`."""
    https: bool = True
    tmp: Path | None = None
    """For unpacking, several gigabytes an image; None: a folder beside the images."""
    timeout_s: float = 7200.0
    """For one image."""


class Fetcher:
    """Makes image files for one call of staging, until it is told to stop."""

    def __init__(
        self, store: ImageStore, origin: Origin, options: FetchOptions, stopping: threading.Event
    ) -> None:
        """Make a folder for unfinished files, and remove those of calls that were killed.

        Raises:
            SandboxError: there is no container runtime here.
        """
        self._store = store
        self._origin = origin
        self._options = options
        self._stopping = stopping
        self._runtime = find_runtime()
        self._registry = Registry(authfile=options.authfile, https=options.https)
        place = options.tmp or store.folder
        for folder in {store.folder, place}:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_unfinished(folder)
        self._tmp = Path(tempfile.mkdtemp(prefix=_owned_name(), dir=place))
        # Never the user's own cache, which fills a home folder's quota.
        theirs = ("_CACHEDIR", "_TMPDIR")
        env = {k: v for k, v in environment().items() if not k.endswith(theirs)}
        self._env = runtime_environment(env, self._tmp)

    def fetch(self, reference: str) -> str:
        """Make an image's file and record; return a complaint, empty if they are made."""
        part = self._tmp / f"{file_stem(reference)}.sif"
        try:
            digest = self._digest(reference)
            source = self._origin.uri(reference, digest)
            complaint = self._build(part, source) or self._check(part)
            if not complaint:
                self._publish(part, reference, source, digest)
        except (SandboxError, OSError) as error:
            return str(error)
        finally:
            part.unlink(missing_ok=True)
        return complaint

    def share(self, made: str, reference: str) -> None:
        """Record that `reference` is the file that was made for `made`."""
        record = self._store.find(made)
        assert record is not None
        self._store.write_record(replace(record, reference=reference))

    def tidy(self) -> None:
        """Remove every temporary file of this call."""
        remove_tree(self._tmp)

    def _publish(self, part: Path, reference: str, source: str, digest: str | None) -> None:
        final = self._store.folder / f"{file_stem(reference)}.sif"
        record = ImageRecord(
            reference=reference,
            file=final.name,
            sif_sha256=sha256_of(part),
            sif_bytes=part.stat().st_size,
            source=source,
            manifest_digest=digest,
        )
        _move(part, final)
        self._store.write_record(record)

    def _digest(self, reference: str) -> str | None:
        if not self._origin.is_remote:
            return self._origin.archive_digest(reference)
        try:
            return self._registry.digest(self._origin.remote_name(reference))
        except RegistryError:
            # The image can be had without: by its tag, which may move.
            return None

    def _build(self, target: Path, source: str) -> str:
        argv = [self._runtime, "build", "--force"]
        if self._origin.is_remote:
            argv += [] if self._options.https else ["--no-https"]
            if self._options.authfile:
                argv += ["--authfile", str(self._options.authfile)]
        return self._run([*argv, str(target), source], self._options.timeout_s)

    def _check(self, path: Path) -> str:
        return self._run([self._runtime, "sif", "list", str(path)], 120.0)

    def _run(self, argv: Sequence[str], timeout_s: float) -> str:
        """Run a command of the runtime; return its complaint, empty if it did well."""
        log = self._tmp / f"log-{threading.get_ident()}"
        log.unlink(missing_ok=True)
        child = start_group(argv, env=self._env, cwd=self._tmp, log=log)
        deadline = time.monotonic() + timeout_s
        try:
            while child.wait(0.2) is None:
                if self._stopping.is_set():
                    return "interrupted"
                if time.monotonic() > deadline:
                    return f"not done after {timeout_s:.0f} s"
            if child.returncode == 0:
                return ""
            said = log.read_text(errors="replace").strip()
            return said[-2000:] or f"exit status {child.returncode}"
        finally:
            child.stop(grace_s=5)


def _move(part: Path, final: Path) -> None:
    """Put a finished file in its place, which may be on another disk, whole or not at all."""
    if part.stat().st_dev == final.parent.stat().st_dev:
        part.replace(final)
        return
    beside = final.with_name(f"{_owned_name()}{final.name}")
    try:
        with part.open("rb") as source, beside.open("wb") as target:
            while chunk := source.read(1 << 24):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        beside.replace(final)
    finally:
        beside.unlink(missing_ok=True)


def _owned_name() -> str:
    """Return a prefix for unfinished files that says whose they are."""
    identity = process_identity(os.getpid())
    assert identity is not None
    return f".{socket.gethostname()}-{identity.pid}-{identity.start_ticks}{_PART}-"


def _remove_unfinished(folder: Path) -> None:
    """Remove what calls left that did not live to tidy up."""
    for path in folder.glob(f".*{_PART}-*"):
        host, *identity = path.name[1:].split(_PART)[0].rsplit("-", 2)
        if len(identity) != 2 or not all(field.isdigit() for field in identity):
            continue
        if host == socket.gethostname():
            abandoned = not is_alive(ProcessIdentity(*map(int, identity)))
        else:
            abandoned = time.time() - _changed_s(path) > _ABANDONED_S
        if abandoned and path.is_dir():
            remove_tree(path)
        elif abandoned:
            path.unlink(missing_ok=True)


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # its owner has just tidied up
        return math.inf
