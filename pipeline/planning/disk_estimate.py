"""What a sweep takes of disks: the images that it runs in, and what its runs leave behind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import image_reference
from pipeline.sandbox.images import ImageRecord, ImageStore
from pipeline.sandbox.staging_estimate import MEAN_IMAGE_BYTES
from pipeline.spec.sweep import SweepSpec

BYTES_A_RUN = 60_000
"""A run of 60 steps in the journal and again in the tables, compressed."""


def disk_text(spec: SweepSpec, rows: Sequence[Mapping[str, Any]], n_runs: int) -> str:
    """Return what `dry_run=true` prints of disks; images that are not staged are estimated."""
    results = f"about {n_runs * BYTES_A_RUN / 1e6:,.0f} MB of results"
    if spec.sandbox != "apptainer":
        return results
    references = {image_reference(row) for row in rows}
    staged = _staged(spec.cluster.images, references)
    missing = len(references) - len(staged)
    # Several images may share a file.
    here = sum({record.file: record.sif_bytes for record in staged}.values())
    return (
        f"{len(references):,} images: {len(staged):,} staged ({here / 1e9:,.1f} GB), "
        f"{missing:,} to stage (about {missing * MEAN_IMAGE_BYTES / 1e9:,.0f} GB); {results}"
    )


def _staged(folder: str | None, references: set[str]) -> list[ImageRecord]:
    if folder is None:
        return []
    store = ImageStore(Path(folder), image_reference)
    return [record for record in map(store.find, references) if record is not None]
