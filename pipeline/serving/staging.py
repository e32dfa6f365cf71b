"""Bringing a model's files to the site, whole and with their digests.

Owns `stage model`: a local snapshot is verified and copied, a name on the Hugging Face hub is
fetched at one commit. Servers then run offline. What lies in the folder afterwards is
`pipeline.serving.staged`'s to say; what runs the model is not known here.
"""

import hashlib
import importlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.serving.staged import (
    MANIFEST,
    Manifest,
    ModelFilesError,
    check_model_files,
    read_manifest,
    write_manifest,
)

_HUB_SNAPSHOT = re.compile(r"models--([^/]+)--([^/]+)/snapshots/([0-9a-f]{40})$")


def stage_model(
    source: str,
    folder: Path,
    *,
    repo: str | None = None,
    revision: str | None = None,
    tell: Callable[[str], None],
) -> Manifest:
    """Put the model at `source` into `folder`; return its manifest.

    A call that was interrupted is taken up: files that are there already are not copied again.

    Args:
        source: a folder with `config.json` and safetensors, or a name on the hub.
        folder: made if absent; may be `source` itself, which then is only verified.
        repo: the name on the hub of what a folder holds; a folder of the hub's cache names itself.
        revision: a commit, or on the hub a branch or tag, of which the commit is taken.
        tell: takes a line of progress.

    Raises:
        ModelFilesError: files are missing or empty, or the folder holds another model.
    """
    origin = Path(source)
    if origin.is_dir():
        repo, revision = _named(origin, repo, revision)
        check_model_files(origin)
    else:
        repo, revision = source, _commit_on_hub(source, revision)
    begun = Manifest(source=source, repo=repo, revision=revision)
    _refuse_another(folder, begun)
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, begun)
    if not origin.is_dir():
        _hub(source).snapshot_download(source, revision=revision, local_dir=folder)
    elif origin.resolve() != folder.resolve():
        for path in _files(origin):
            _copy(path, folder / path.relative_to(origin), tell)
    check_model_files(folder)
    names = [str(p.relative_to(folder)) for p in _files(folder) if p != folder / MANIFEST]
    digests = {}
    for name in names:
        digests[name] = _sha256(folder / name)
        tell(f"{digests[name][:12]}  {name}")
    manifest = Manifest(
        source=source,
        repo=repo,
        revision=revision,
        sha256=digests,
        bytes={name: (folder / name).stat().st_size for name in names},
    )
    write_manifest(folder, manifest)
    return manifest


def _named(origin: Path, repo: str | None, revision: str | None) -> tuple[str | None, str | None]:
    """Return repository and revision of a local folder, as told or as the folder itself says."""
    found = _HUB_SNAPSHOT.search(str(origin.resolve()))
    if found is not None:
        return repo or f"{found[1]}/{found[2]}", revision or found[3]
    staged = read_manifest(origin)
    if staged is not None:
        return repo or staged.repo, revision or staged.revision
    return repo, revision


def _refuse_another(folder: Path, wanted: Manifest) -> None:
    """Raise if `folder` holds other weights: shards of one size would be taken for each other.

    Raises:
        ModelFilesError: it does.
    """
    there = read_manifest(folder)
    if there is None or there.repo is None:
        return
    if (there.repo, there.revision) != (wanted.repo, wanted.revision):
        raise ModelFilesError(
            f"{folder} is of {there.repo} at {there.revision}, not of {wanted.repo} at "
            f"{wanted.revision}; name another folder, or remove that one"
        )


def _files(folder: Path) -> list[Path]:
    """Return the files of a snapshot, without what tools keep beside them."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _copy(source: Path, target: Path, tell: Callable[[str], None]) -> None:
    if source.name == MANIFEST:
        return
    # Shards of another revision have the same size: only the content tells.
    same_size = target.is_file() and target.stat().st_size == source.stat().st_size
    if same_size and _sha256(target) == _sha256(source):
        return
    tell(f"copying {source.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    # The hub's cache is made of links; what is staged must outlive that cache.
    shutil.copyfile(source, part, follow_symlinks=True)
    part.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _commit_on_hub(name: str, revision: str | None) -> str:
    """Return the commit that a branch, a tag or nothing at all stands for now."""
    return str(_hub(name).model_info(name, revision=revision).sha)


def _hub(name: str) -> Any:
    if name.count("/") != 1:
        raise ModelFilesError(f"there is no folder {name}, and it is no name on the hub either")
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelFilesError(
            f"there is no folder {name} here; to fetch it from the hub install huggingface_hub"
        ) from error
