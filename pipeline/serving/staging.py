"""Bringing a model's files to the site, whole and with their digests.

Owns `stage model`: a local snapshot is verified and copied, a name on the Hugging Face hub is
fetched. Servers then run offline. Does not know what runs the model.
"""

import hashlib
import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from pipeline.host.files import replace_bytes

MANIFEST = "planprune-manifest.json"
_INDEX = "model.safetensors.index.json"


class ModelFilesError(ValueError):
    """A model that is missing, incomplete, or not what its manifest says."""


def stage_model(
    source: str, folder: Path, *, revision: str | None = None, tell: Callable[[str], None]
) -> dict[str, str]:
    """Put the model at `source` into `folder`; return the SHA-256 of its files by name.

    A call that was interrupted is taken up: files of the right size are not copied again.

    Args:
        source: a folder with `config.json` and safetensors, or a name on the hub.
        folder: made if absent; may be `source` itself, which then is only verified.
        revision: on the hub; a commit, so that it can be told later which one it was.
        tell: takes a line of progress.

    Raises:
        ModelFilesError: files are missing or empty.
    """
    origin = Path(source)
    if not origin.is_dir():
        origin = _download(source, folder, revision)
    check_model_files(origin)
    folder.mkdir(parents=True, exist_ok=True)
    if origin.resolve() != folder.resolve():
        for path in _files(origin):
            _copy(path, folder / path.relative_to(origin), tell)
        check_model_files(folder)
    digests = {}
    for path in _files(folder):
        name = str(path.relative_to(folder))
        if name != MANIFEST:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
            tell(f"{digests[name][:12]}  {name}")
    manifest = {"source": source, "revision": revision, "sha256": digests}
    replace_bytes(folder / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    return digests


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


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _files(folder: Path) -> list[Path]:
    """Return the files of a snapshot, without what tools keep beside them."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _copy(source: Path, target: Path, tell: Callable[[str], None]) -> None:
    if target.is_file() and target.stat().st_size == source.stat().st_size:
        return
    tell(f"copying {source.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    # The hub's cache is made of links; what is staged must outlive that cache.
    shutil.copyfile(source, part, follow_symlinks=True)
    part.replace(target)


def _download(name: str, folder: Path, revision: str | None) -> Path:
    if name.count("/") != 1:
        raise ModelFilesError(f"there is no folder {name}, and it is no name on the hub either")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelFilesError(
            f"there is no folder {name} here; to fetch it from the hub install huggingface_hub"
        ) from error
    return Path(hub.snapshot_download(name, revision=revision, local_dir=folder))
