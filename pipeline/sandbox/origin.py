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
        return f"{self.place.rstrip('/')}/{reference.partition('/')[2]}"

    def uri(self, reference: str, digest: str | None) -> str:
        """Return what the runtime builds the image from, pinned to `digest` where it is known.

        Raises:
            SandboxError: there is no archive of the image.
        """
        if self.kind == "registry":
            name = self.remote_name(reference)
            if digest is None:
                return f"docker://{name}"
            # A tag may move between our question and the download; a digest cannot.
            repository = name if ":" not in name.rpartition("/")[2] else name.rpartition(":")[0]
            return f"docker://{repository}@{digest}"
        if self.kind == "root":
            return self.place
        archive = self._archive(reference)
        return f"{'docker' if _is_docker(archive) else 'oci'}-archive:{archive}"

    def bytes_of(self, reference: str) -> int | None:
        """Return about how large the image will be, None if that is not to be told here."""
        if self.kind == "archives":
            return self._archive(reference).stat().st_size
        if self.kind == "root":
            place = Path(self.place)
            if place.is_file():
                return place.stat().st_size
            return sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir()) // 2
        return None

    def archive_digest(self, reference: str) -> str | None:
        """Return the manifest digest that an OCI archive tells of itself."""
        if self.kind != "archives" or _is_docker(archive := self._archive(reference)):
            return None
        with tarfile.open(archive) as tar:
            index = tar.extractfile("index.json")
            assert index is not None
            return str(json.load(index)["manifests"][0]["digest"])

    def _archive(self, reference: str) -> Path:
        stems = (file_stem(reference), file_stem(reference.rpartition("/")[2]))
        names = [f"{stem}.tar" for stem in stems] + [f"{stems[1].rpartition('_')[0]}.tar"]
        for name in names:
            path = Path(self.place, name)
            if path.is_file():
                return path
        raise SandboxError(f"no archive of {reference} in {self.place}; looked for {names}")


def _is_docker(archive: Path) -> bool:
    """Return whether an archive is `docker save`'s and not an OCI one."""
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    return "index.json" not in names and "manifest.json" in names
