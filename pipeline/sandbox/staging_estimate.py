"""What staging images will take, before it begins: bytes to fetch, bytes to unpack, bytes free.

Owns the estimate and the refusal where there is no room. A few images are asked after and the
rest extrapolated; a quota is beyond it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.plural import plural
from pipeline.records.failure import SandboxError
from pipeline.sandbox.images import ImageStore
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.registry import Registry, RegistryError
from pipeline.sandbox.staging import StagingOptions

MEAN_IMAGE_BYTES = 1_300_000_000
"""Of an official image as a SIF file: 650 GB for the 500 of SWE-bench Verified."""
_UNPACKED_FACTOR = 4
_SAMPLE = 3


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


def estimate(
    store: ImageStore, references: Sequence[str], origin: Origin, options: StagingOptions
) -> Estimate:
    """Return what it takes to stage `references`; a few are asked after, the rest extrapolated."""
    sizes = [size for size in map(origin.bytes_of, references[:_SAMPLE]) if size is not None]
    if origin.is_remote:
        registry = Registry(authfile=options.fetch.authfile, https=options.fetch.https)
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
        tmp_bytes=0 if options.fetch.tmp else _UNPACKED_FACTOR * mean * at_once,
        free_bytes=disk.f_bavail * disk.f_frsize,
    )


def require_room(needed: Estimate) -> None:
    """Raise if the images' disk has no room for what `needed` says.

    Raises:
        SandboxError: it has not; the message has both figures.
    """
    if not needed.fits:
        gigabytes = (needed.sif_bytes + needed.tmp_bytes) / 1e9
        free = needed.free_bytes / 1e9
        raise SandboxError(
            f"{plural(needed.n_images, 'image needs', 'images need')} about {gigabytes:.0f} GB "
            f"and {free:.0f} GB are free: "
            "stage fewer (--only, --limit), unpack elsewhere (--tmp), or say --force"
        )
