"""Where an image is fetched from: its registry, a mirror, a folder of archives, or one root.

Owns the translation of an image's name into what the container runtime can build from. Pure but
for looking into local archives.
"""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.records.failure import SandboxError
from pipeline.sandbox.images import file_stem


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """A place that images come from."""

    kind: Literal["registry", "archives", "root"]
    place: str = ""
    """registry: a mirror's prefix instead of the images' own registry, or nothing. archives: a
    folder of OCI or Docker archives named after the images. root: a root folder or an image file
    that serves for every image."""

    @property
    def is_remote(self) -> bool:
        """Whether it needs network."""
        return self.kind == "registry"

    @property
    def is_shared(self) -> bool:
        """Whether all images are one and the same."""
        return self.kind == "root"

    def remote_name(self, reference: str) -> str:
        """Return the name under which the registry or mirror has the image."""
        if not self.place:
            return reference
        prefix = self.place.removeprefix("https://").removeprefix("docker://").rstrip("/")
        return f"{prefix}/{reference.partition('/')[2]}"

    def uri(self, reference: str, digest: str | None) -> str:
        """Return what the runtime builds the image from, pinned to `digest` where it is known.

        Raises:
            SandboxError: there is no archive of the image, or it is none.
        """
        if self.kind == "registry":
            name = self.remote_name(reference)
            if digest is None or "@" in name:
                return f"docker://{name}"
            # A tag may move between our question and the download; a digest cannot.
            repository = name if ":" not in name.rpartition("/")[2] else name.rpartition(":")[0]
            return f"docker://{repository}@{digest}"
        if self.kind == "root":
            return self.place
        archive = self._archive(reference)
        if archive is None:
            raise SandboxError(
                f"no archive of {reference} in {self.place}; looked for {_archive_names(reference)}"
            )
        return f"{'oci' if _oci_digest(archive) else 'docker'}-archive:{archive}"

    def bytes_of(self, reference: str) -> int | None:
        """Return about how large the image will be, None if that is not to be told here."""
        if self.kind == "archives":
            archive = self._archive(reference)
            return None if archive is None else archive.stat().st_size
        if self.kind == "root":
            place = Path(self.place)
            if place.is_file():
                return place.stat().st_size
            return sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir()) // 2
        return None

    def archive_digest(self, reference: str) -> str | None:
        """Return the manifest digest that an OCI archive tells of itself.

        Raises:
            SandboxError: the archive is none.
        """
        archive = self._archive(reference) if self.kind == "archives" else None
        return None if archive is None else _oci_digest(archive)

    def _archive(self, reference: str) -> Path | None:
        paths = (Path(self.place, name) for name in _archive_names(reference))
        return next((path for path in paths if path.is_file()), None)


def _archive_names(reference: str) -> list[str]:
    """Return the names that an image's archive may have: full, without registry, without tag."""
    short = file_stem(reference.rpartition("/")[2])
    return [f"{stem}.tar" for stem in (file_stem(reference), short, short.rpartition("_")[0])]


def _oci_digest(archive: Path) -> str | None:
    """Return the digest of the image in an OCI archive, None if it is `docker save`'s.

    Raises:
        SandboxError: it is neither.
    """
    try:
        with tarfile.open(archive) as tar:
            names = tar.getnames()
            if "index.json" not in names and "manifest.json" in names:
                return None
            index = tar.extractfile("index.json")
            assert index is not None
            return str(json.load(index)["manifests"][0]["digest"])
    except (tarfile.TarError, OSError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise SandboxError(f"{archive} is no OCI or Docker archive: {error}") from error
