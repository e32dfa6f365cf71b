"""What lies in the folder that a model's files were staged into, and whether it is that model.

Owns the manifest beside the files: which repository and revision they are of, and what each file
is. It is written before the first file, without their digests, and again after the last: what has
none is half staged. Fetching is `pipeline.serving.staging`'s.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.host.files import read_json, replace_bytes
from pipeline.spec.model import ModelSpec

MANIFEST = "planprune-manifest.json"
_INDEX = "model.safetensors.index.json"
_SIF_MAGIC = b"SIF_MAGIC"
_SIF_MAGIC_AT = 32


class ModelFilesError(ValueError):
    """A model that is missing, incomplete, or not what its manifest says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a folder of weights says of itself."""

    source: str
    """As `stage model` was told: a folder, or a name on the hub."""
    repo: str | None = None
    """The name on the hub; None: a folder that nobody has named."""
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)
    """File name to digest; empty until all are there."""
    bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether staging came to its end."""
        return bool(self.sha256)

    @property
    def digest(self) -> str:
        """One SHA-256 over all files' names and digests."""
        lines = (f"{digest}  {name}\n" for name, digest in sorted(self.sha256.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """Return what `folder` says of itself; None if it says nothing.

    Raises:
        ModelFilesError: the manifest is damaged.
    """
    try:
        data = read_json(folder / MANIFEST)
        return Manifest(**data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (TypeError, ValueError) as error:
        raise ModelFilesError(
            f"{folder / MANIFEST} is damaged; stage the model again ({error})"
        ) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write what `folder` holds beside it."""
    replace_bytes(folder / MANIFEST, json.dumps(asdict(manifest), indent=1).encode() + b"\n")


def check_model_files(folder: Path) -> None:
    """Raise unless `folder` has a configuration, a tokenizer and every shard of the weights.

    Raises:
        ModelFilesError: something is missing; the message names all of it.
    """
    problems = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(folder.glob("tokenizer*")) and not any(folder.glob("*.tiktoken")):
        problems.append("a tokenizer (tokenizer.json or tokenizer_config.json)")
    index = folder / _INDEX
    if index.is_file():
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    else:
        shards = [path.name for path in folder.glob("*.safetensors")] or ["*.safetensors"]
    problems += [name for name in shards if not _has_content(folder / name)]
    if problems:
        raise ModelFilesError(f"{folder} is no complete model; it lacks: {', '.join(problems)}")


def model_problem(model: ModelSpec, folder: Path, *, strict: bool) -> str | None:
    """Return why the files in `folder` are not those that `model` names; None if they are.

    Args:
        model: with the repository and the revision that runs are named after.
        folder: where its server would read the weights.
        strict: a manifest that names both is demanded, as it is for every real experiment.
    """
    try:
        check_model_files(folder)
        manifest = read_manifest(folder)
    except ModelFilesError as error:
        return str(error)
    if manifest is None:
        return f"{folder} does not say what it holds" if strict else None
    if not manifest.is_whole:
        return f"{folder} is half staged"
    changed = [
        name
        for name, size in manifest.bytes.items()
        if not (folder / name).is_file() or (folder / name).stat().st_size != size
    ]
    if changed:
        return f"{folder} is not what was staged: {', '.join(changed[:3])} changed since"
    if manifest.repo != model.repo and (strict or manifest.repo is not None):
        return f"{folder} holds {manifest.repo or manifest.source}, not {model.repo}"
    if manifest.revision != model.revision and (strict or manifest.revision is not None):
        return (
            f"{folder} holds revision {manifest.revision} of {model.repo}, not {model.revision}"
            + (
                f"; to run that one say model.revision={manifest.revision}"
                * bool(manifest.revision)
            )
        )
    return None


def image_problem(image: Path) -> str | None:
    """Return why `image` cannot be a container image; None if it looks like one."""
    if image.is_dir():
        return None if any(image.iterdir()) else f"{image} is an empty folder"
    if not image.is_file():
        return f"no image {image}"
    with image.open("rb") as file:
        head = file.read(_SIF_MAGIC_AT + len(_SIF_MAGIC))
    if not head:
        return f"{image} is an empty file"
    return None if head.endswith(_SIF_MAGIC) else f"{image} is no SIF file"


def image_sha256(image: Path) -> str | None:
    """Return the digest that was written beside `image` when it was built; None where none was.

    An image has several GB: it is not read again at every launch.
    """
    try:
        words = Path(f"{image}.sha256").read_text("utf-8", "replace").split()
    except OSError:
        return None
    return words[0] if words else None


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
