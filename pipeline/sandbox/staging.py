"""Fetching images: from their names to verified SIF files, once, where there is network.

Owns the work of `stage images`: a few downloads at a time, each published whole or not at all,
tried again where a registry asks for patience, and taken up where an earlier call ended. What
counts as staged is the record that `pipeline.sandbox.images` reads, written last.
"""

import hashlib
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.host.environment import environment
from pipeline.host.files import remove_tree
from pipeline.host.process import is_alive, process_identity, start_group
from pipeline.records.failure import SandboxError
from pipeline.sandbox.images import ImageRecord, ImageStore, file_stem
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.registry import Registry, RegistryError
from pipeline.sandbox.runtime import find_runtime, runtime_environment

MEAN_IMAGE_BYTES = 1_300_000_000
"""Of an official image as a SIF file: 650 GB for the 500 of SWE-bench Verified."""
_UNPACKED_FACTOR = 4
_SAMPLE = 3
_PART = ".part"
_Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingOptions:
    """How hard to work."""

    jobs: int = 4
    """Images at a time."""
    pause_s: float = 0.0
    """Between the starts of two downloads."""
    tries: int = 5
    timeout_s: float = 7200.0
    """For one image."""
    authfile: Path | None = None
    https: bool = True
    tmp: Path | None = None
    """For unpacking, several gigabytes an image; None: a folder beside the images."""
    patience_s: tuple[float, float] = (60.0, 180.0)
    """How long to wait, at random between these, after a refusal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What staging will take."""

    n_images: int
    sif_bytes: int
    tmp_bytes: int
    free_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the images' disk has the room now. Says nothing of a quota."""
        return self.sif_bytes + self.tmp_bytes < self.free_bytes


@dataclass(kw_only=True, slots=True)
class StagingReport:
    """What came of it."""

    staged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The complaint, by image."""


def estimate(
    store: ImageStore, references: Sequence[str], origin: Origin, options: StagingOptions
) -> Estimate:
    """Return what it takes to stage `references`; a few are asked after, the rest extrapolated."""
    sizes = [size for size in map(origin.bytes_of, references[:_SAMPLE]) if size is not None]
    if origin.is_remote:
        registry = Registry(authfile=options.authfile, https=options.https)
        for reference in references[:_SAMPLE]:
            try:
                described = registry.describe(origin.remote_name(reference))
            except RegistryError:
                break
            if described.layers_bytes is not None:
                sizes.append(described.layers_bytes)
    mean = sum(sizes) // len(sizes) if sizes else MEAN_IMAGE_BYTES
    n_files = min(len(references), 1) if origin.is_shared else len(references)
    disk = os.statvfs(store.folder)
    at_once = min(options.jobs, n_files)
    return Estimate(
        n_images=len(references),
        sif_bytes=mean * n_files,
        tmp_bytes=0 if options.tmp else _UNPACKED_FACTOR * mean * at_once,
        free_bytes=disk.f_bavail * disk.f_frsize,
    )


def stage_images(
    store: ImageStore,
    references: Sequence[str],
    origin: Origin,
    *,
    options: StagingOptions,
    tell: _Tell,
    rng: random.Random,
) -> StagingReport:
    """Stage what is missing of `references`; a failed image does not stop the others.

    Args:
        store: where to.
        references: full image names.
        origin: where from.
        options: how hard to work.
        tell: takes a line of progress.
        rng: spreads retries, so that many users behind one address do not retry at once.

    Raises:
        SandboxError: there is no container runtime here.
        KeyboardInterrupt: the caller's; downloads are stopped and their files removed first.
    """
    report = StagingReport()
    job = _Staging(store, origin, options, tell, rng)
    missing = [reference for reference in references if store.find(reference) is None]
    tell(f"{len(references) - len(missing)} of {len(references)} images are here already")
    if origin.is_shared and missing:
        # One file serves them all, so the others are records only.
        missing, others = missing[:1], missing[1:]
    else:
        others = []
    try:
        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            waiting = {pool.submit(job.one, reference): reference for reference in missing}
            try:
                for done in as_completed(waiting):
                    reference, complaint = waiting[done], done.result()
                    _note(report, reference, complaint)
                    n_done = len(report.staged) + len(report.failed)
                    state = complaint.splitlines()[-1] if complaint else "staged"
                    tell(f"[{n_done}/{len(missing)}] {reference}: {state}")
            except BaseException:
                job.stopping.set()
                pool.shutdown(cancel_futures=True)
                raise
        if not report.failed:
            for reference in others:
                job.share(missing[0], reference)
                report.staged.append(reference)
    finally:
        job.tidy()
        store.write_manifest()
    return report


def verify(store: ImageStore, references: Sequence[str]) -> list[str]:
    """Return those of `references` whose file is missing or no longer has its recorded digest."""
    broken = []
    known: dict[str, str] = {}
    for reference in references:
        record = store.find(reference)
        if record is None:
            broken.append(reference)
            continue
        if record.file not in known:
            known[record.file] = sha256_of(store.folder / record.file)
        if known[record.file] != record.sif_sha256:
            broken.append(reference)
    return broken


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Staging:
    """One call's state: what runs, when the next may start, and where unfinished files are."""

    def __init__(
        self,
        store: ImageStore,
        origin: Origin,
        options: StagingOptions,
        tell: _Tell,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._origin = origin
        self._options = options
        self._tell = tell
        self._rng = rng
        self._runtime = find_runtime()
        self._registry = Registry(authfile=options.authfile, https=options.https)
        self._lock = threading.Lock()
        self._next_start = 0.0
        self.stopping = threading.Event()
        store.folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(store.folder)
        self._tmp = Path(tempfile.mkdtemp(prefix=_owned_name(), dir=options.tmp or store.folder))
        self._env = self._environment(environment())

    def one(self, reference: str) -> str:
        """Stage one image; return a complaint, empty if it is staged."""
        complaint = ""
        for attempt in range(self._options.tries):
            if self.stopping.is_set():
                return "interrupted"
            self._await_turn()
            complaint = self._fetch(reference)
            if not complaint or not self._origin.is_remote:
                return complaint
            if attempt + 1 < self._options.tries:
                wait_s = self._rng.uniform(*self._options.patience_s)
                self._tell(f"{reference}: {complaint.splitlines()[-1]}; again in {wait_s:.0f} s")
                self.stopping.wait(wait_s)
        return complaint

    def share(self, made: str, reference: str) -> None:
        """Record that `reference` is the file that was made for `made`."""
        record = self._store.find(made)
        assert record is not None
        self._store.write_record(
            ImageRecord(
                reference=reference,
                file=record.file,
                sif_sha256=record.sif_sha256,
                sif_bytes=record.sif_bytes,
                source=record.source,
                manifest_digest=record.manifest_digest,
            )
        )

    def tidy(self) -> None:
        """Remove every temporary file of this call."""
        remove_tree(self._tmp)

    def _fetch(self, reference: str) -> str:
        digest = self._digest(reference)
        source = self._origin.uri(reference, digest)
        part = self._tmp / f"{file_stem(reference)}.sif"
        complaint = self._build(part, source) or self._check(part)
        if complaint:
            part.unlink(missing_ok=True)
            return complaint
        final = self._store.folder / f"{file_stem(reference)}.sif"
        record = ImageRecord(
            reference=reference,
            file=final.name,
            sif_sha256=sha256_of(part),
            sif_bytes=part.stat().st_size,
            source=source,
            manifest_digest=digest,
        )
        self._publish(part, final)
        self._store.write_record(record)
        return ""

    def _publish(self, part: Path, final: Path) -> None:
        if part.stat().st_dev == self._store.folder.stat().st_dev:
            part.replace(final)
            return
        beside = self._store.folder / f"{_owned_name()}{final.name}"
        try:
            with part.open("rb") as source, beside.open("wb") as target:
                while chunk := source.read(1 << 24):
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            beside.replace(final)
        finally:
            beside.unlink(missing_ok=True)
            part.unlink(missing_ok=True)

    def _digest(self, reference: str) -> str | None:
        if not self._origin.is_remote:
            return self._origin.archive_digest(reference)
        try:
            return self._registry.digest(self._origin.remote_name(reference))
        except RegistryError as error:
            self._tell(f"{reference}: digest unknown ({error})")
            return None

    def _build(self, target: Path, source: str) -> str:
        argv = [self._runtime, "build", "--force"]
        argv += [] if self._options.https or not self._origin.is_remote else ["--no-https"]
        if self._options.authfile and self._origin.is_remote:
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
                if self.stopping.is_set():
                    return "interrupted"
                if time.monotonic() > deadline:
                    return f"not done after {timeout_s:.0f} s"
            if child.returncode == 0:
                return ""
            said = log.read_text(errors="replace").strip()
            return said[-2000:] or f"exit status {child.returncode}"
        finally:
            child.stop(grace_s=5)

    def _await_turn(self) -> None:
        with self._lock:
            now = time.monotonic()
            wait_s = max(0.0, self._next_start - now)
            self._next_start = max(now, self._next_start) + self._options.pause_s
        self.stopping.wait(wait_s)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        # Never the user's own cache, which fills a home folder's quota.
        dropped = ("_CACHEDIR", "_TMPDIR")
        return runtime_environment(
            {name: value for name, value in env.items() if not name.endswith(dropped)}, self._tmp
        )


def _note(report: StagingReport, reference: str, complaint: str) -> None:
    if complaint:
        report.failed[reference] = complaint
    else:
        report.staged.append(reference)


def _owned_name() -> str:
    """Return a prefix for unfinished files that says whose they are."""
    identity = process_identity(os.getpid())
    assert identity is not None
    return f".{socket.gethostname()}-{identity.pid}-{identity.start_ticks}{_PART}-"


def _remove_unfinished(folder: Path) -> None:
    """Remove what calls on this machine left that did not live to tidy up."""
    for path in folder.glob(f".{socket.gethostname()}-*{_PART}-*"):
        owner = path.name.removeprefix(f".{socket.gethostname()}-").split(_PART)[0].split("-")
        pid, start_ticks = (int(field) for field in owner)
        known = process_identity(pid)
        if known is not None and known.start_ticks == start_ticks and is_alive(known):
            continue
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def require_room(needed: Estimate) -> None:
    """Raise if the images' disk has no room for what `needed` says.

    Raises:
        SandboxError: it has not; the message has both figures.
    """
    if not needed.fits:
        gigabytes = (needed.sif_bytes + needed.tmp_bytes) / 1e9
        free = needed.free_bytes / 1e9
        raise SandboxError(
            f"{needed.n_images} images need about {gigabytes:.0f} GB and {free:.0f} GB are free: "
            "stage fewer (--only, --limit), unpack elsewhere (--tmp), or say --force"
        )
