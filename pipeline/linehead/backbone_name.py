"""Which model a head belongs to: its name on the hub and its revision.

A width says little: many models are 4,096 wide. Weights that were staged say what they are in the
manifest beside them; other folders are known by their own name alone. Needs no PyTorch.
"""

from dataclasses import dataclass
from pathlib import Path

from pipeline.serving.staged import read_manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneName:
    """A model, by name and revision."""

    repo: str
    revision: str | None = None
    """None: unknown."""

    def __str__(self) -> str:
        return f"{self.repo} at {self.revision or 'an unknown revision'}"

    def may_be(self, other: "BackboneName") -> bool:
        """Return whether both can be one model: equal names, and no two known revisions differ.

        Organizations are not compared, since a folder is often named after the model alone.
        """
        same_name = _last_part(self.repo) == _last_part(other.repo)
        return same_name and (
            None in (self.revision, other.revision) or self.revision == other.revision
        )


def backbone_name(model: str, revision: str | None = None) -> BackboneName:
    """Return the name of the model at `model`, a folder or a name on the hub.

    Args:
        model: as a server or `features` was told.
        revision: as they were told; it wins over the manifest's.

    Raises:
        ModelFilesError: the folder's manifest is damaged.
    """
    folder = Path(model)
    staged = read_manifest(folder)
    if staged is not None and staged.repo is not None:
        return BackboneName(repo=staged.repo, revision=revision or staged.revision)
    return BackboneName(repo=folder.name if folder.is_dir() else model, revision=revision)


def _last_part(repo: str) -> str:
    return repo.rstrip("/").rpartition("/")[2].lower()
