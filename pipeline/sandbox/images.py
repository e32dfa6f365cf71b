"""The images that were staged for this site: from a benchmark row to a file and its digests.

Owns the folder of SIF files and the record beside each. A record is written last, so an image
without one is not there, whatever else lies in the folder. Fetching is
`pipeline.sandbox.staging`'s; jobs only read.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.host.files import read_json, replace_bytes
from pipeline.records.failure import SandboxError

MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRecord:
    """What is known of one staged image."""

    reference: str
    """The image's full name: registry, repository and tag."""
    file: str
    """The SIF file's name in the folder. Several images may share one."""
    sif_sha256: str
    sif_bytes: int
    source: str
    """What it was made from."""
    manifest_digest: str | None
    """By which a registry knows the image; None if it came from no registry."""


class ImageStore:
    """The staged images in one folder."""

    def __init__(self, folder: Path, reference_of: Callable[[Mapping[str, Any]], str]) -> None:
        """Prepare; nothing is read yet.

        Args:
            folder: where `stage images` put them.
            reference_of: the full image name of a benchmark row.
        """
        self.folder = folder
        self._reference_of = reference_of
        self._known: dict[str, ImageRecord] = {}

    def record_for(self, row: Mapping[str, Any]) -> ImageRecord:
        """Return what is known of the row's image.

        Raises:
            SandboxError: it was not staged; the message has the command that does it.
        """
        reference = self._reference_of(row)
        record = self._known.get(reference) or self.find(reference)
        if record is None:
            raise SandboxError(
                f"{row['instance_id']}: its image {reference} is not in {self.folder}; stage it "
                f"where there is network: python -m pipeline.stage images --dataset FILE "
                f"--to {self.folder} --only {row['instance_id']}"
            )
        self._known[reference] = record
        return record

    def find(self, reference: str) -> ImageRecord | None:
        """Return the record of an image, None if it or its file is not there, or not whole."""
        record = _record_at(self.folder / f"{file_stem(reference)}.json")
        if record is None or record.reference != reference:
            return None
        file = self.folder / record.file
        if not file.is_file() or file.stat().st_size != record.sif_bytes:
            return None
        return record

    def sif_for(self, row: Mapping[str, Any]) -> Path:
        """Return the file of the row's image; see `record_for` for errors."""
        return self.folder / self.record_for(row).file

    def sif_digest(self, row: Mapping[str, Any]) -> str:
        """Return the digest of that file."""
        return f"sha256:{self.record_for(row).sif_sha256}"

    def digest(self, row: Mapping[str, Any]) -> str | None:
        """Return the image's digest: its registry's, else that of its file.

        Two files made of one image differ, so only the registry's compares across sites; the
        prefix tells them apart.
        """
        return _digest_of(self.record_for(row))

    def digests(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return instance id to `digest` of the rows whose image is there."""
        found = ((str(row["instance_id"]), self.find(self._reference_of(row))) for row in rows)
        return {instance_id: _digest_of(record) for instance_id, record in found if record}

    def missing(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the references of the rows' images that are not there, each once."""
        references = dict.fromkeys(self._reference_of(row) for row in rows)
        return [reference for reference in references if self.find(reference) is None]

    def write_record(self, record: ImageRecord) -> None:
        """Make an image count as staged."""
        path = self.folder / f"{file_stem(record.reference)}.json"
        replace_bytes(path, _json(asdict(record)))

    def write_manifest(self) -> list[ImageRecord]:
        """Write all records into one file, for people and for the lock; return them."""
        found = map(_record_at, sorted(self.folder.glob("*.json")))
        records = [record for record in found if record is not None]
        replace_bytes(self.folder / MANIFEST, _json([asdict(record) for record in records]))
        return records


def verify(store: ImageStore, references: Iterable[str]) -> list[str]:
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


def _record_at(path: Path) -> ImageRecord | None:
    """Return the record in a file, None if there is none: the folder may hold other files."""
    try:
        return ImageRecord(**read_json(path))
    except (FileNotFoundError, TypeError, ValueError):
        return None


def _digest_of(record: ImageRecord) -> str:
    return record.manifest_digest or f"sif-sha256:{record.sif_sha256}"


def file_stem(reference: str) -> str:
    """Return an image name as a file name, without an ending."""
    return re.sub(r"[^a-z0-9._-]+", "_", reference.lower())


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
