"""What is staged is what runs: other weights, half of them, or an empty image are not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.serving.parts import missing_parts
from pipeline.serving.staged import MANIFEST, ModelFilesError, image_problem, read_manifest
from pipeline.serving.staging import stage_model
from pipeline.spec.model import ModelSpec, ServeSpec

REPO, REVISION = "Org/Model", "a" * 40
SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(64)


def snapshot(folder: Path, *, weights: str = "weights of a") -> Path:
    """Return a folder with the files of a small model."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    for name in shards.values():
        (folder / name).write_text(weights)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return folder


def staged(tmp_path: Path, *, repo: str | None = REPO, revision: str | None = REVISION) -> Path:
    folder = tmp_path / "staged"
    stage_model(
        str(snapshot(tmp_path / "from")), folder, repo=repo, revision=revision, tell=lambda _: None
    )
    return folder


def model(folder: Path, *, repo: str = REPO, revision: str | None = REVISION) -> ModelSpec:
    serve = ServeSpec(python="/bin/sh", model_path=str(folder))
    return ModelSpec(name="m", kind="vllm", repo=repo, revision=revision, serve=serve)


def test_what_was_staged_under_its_name_has_nothing_missing(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    manifest = read_manifest(folder)
    assert manifest is not None
    assert (manifest.repo, manifest.revision, manifest.is_whole) == (REPO, REVISION, True)
    assert set(manifest.sha256) == {path.name for path in folder.iterdir()} - {MANIFEST}
    assert missing_parts(model(folder), strict=True) == {}


def test_another_revision_or_repository_is_refused_with_the_words_that_name_it(
    tmp_path: Path,
) -> None:
    folder = staged(tmp_path)
    for strict in (True, False):
        other = missing_parts(model(folder, revision="b" * 40), strict=strict)["serve.model_path"]
        assert f"model.revision={REVISION}" in other
        other = missing_parts(model(folder, repo="Org/Other"), strict=strict)["serve.model_path"]
        assert f"holds {REPO}, not Org/Other" in other


@pytest.mark.parametrize(
    ("repo", "revision", "says"),
    [(None, None, "not Org/Model"), (REPO, None, "revision None"), (None, REVISION, "not Org")],
)
def test_a_folder_that_does_not_name_itself_is_for_demos_only(
    tmp_path: Path, repo: str | None, revision: str | None, says: str
) -> None:
    folder = staged(tmp_path, repo=repo, revision=revision)
    assert says in missing_parts(model(folder), strict=True)["serve.model_path"]
    assert missing_parts(model(folder)) == {}


def test_a_folder_without_a_manifest_is_for_demos_only(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "by-hand")
    assert (
        "does not say what it holds"
        in missing_parts(model(folder), strict=True)["serve.model_path"]
    )
    assert missing_parts(model(folder)) == {}


def test_a_real_model_without_a_revision_is_refused(tmp_path: Path) -> None:
    missing = missing_parts(model(staged(tmp_path), revision=None), strict=True)
    assert "model.revision=COMMIT" in missing["revision"]
    in_the_hubs_cache = replace(model(tmp_path, revision=None), serve=ServeSpec(python="/bin/sh"))
    assert set(missing_parts(in_the_hubs_cache, strict=True)) == {"revision"}


@pytest.mark.parametrize("harm", ["truncated", "removed", "grown"])
def test_files_that_are_not_as_they_were_staged_are_named(tmp_path: Path, harm: str) -> None:
    folder = staged(tmp_path)
    shard = folder / "model-2.safetensors"
    if harm == "removed":
        shard.unlink()
    else:
        shard.write_text("weig" if harm == "truncated" else "weights of a and more")
    for strict in (True, False):
        said = missing_parts(model(folder), strict=strict)["serve.model_path"]
        assert "model-2.safetensors" in said


def test_a_staging_that_was_interrupted_is_not_taken_for_whole_and_is_taken_up(
    tmp_path: Path,
) -> None:
    source, folder = snapshot(tmp_path / "from"), tmp_path / "to"

    def interrupt(line: str) -> None:
        if "model-2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage_model(str(source), folder, repo=REPO, revision=REVISION, tell=interrupt)
    # Even where all files happen to be there by then.
    snapshot(folder)
    for strict in (True, False):
        said = missing_parts(model(folder), strict=strict)["serve.model_path"]
        assert "half staged" in said
    stage_model(str(source), folder, repo=REPO, revision=REVISION, tell=lambda _: None)
    assert missing_parts(model(folder), strict=True) == {}


def test_another_revision_is_never_staged_over_weights_of_the_same_size(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    newer = str(snapshot(tmp_path / "newer", weights="weights of b"))
    with pytest.raises(ModelFilesError, match="name another folder"):
        stage_model(newer, folder, repo=REPO, revision="b" * 40, tell=lambda _: None)
    assert (folder / "model-1.safetensors").read_text() == "weights of a"


def test_shards_of_equal_size_are_told_apart_by_their_content(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "to", weights="weights of b")
    stage_model(
        str(snapshot(tmp_path / "from")), folder, repo=REPO, revision=REVISION, tell=lambda _: None
    )
    assert (folder / "model-1.safetensors").read_text() == "weights of a"


def test_a_snapshot_in_the_hubs_cache_names_itself(tmp_path: Path) -> None:
    cached = snapshot(tmp_path / "hub" / "models--Org--Model" / "snapshots" / REVISION)
    manifest = stage_model(str(cached), tmp_path / "to", tell=lambda _: None)
    assert (manifest.repo, manifest.revision) == (REPO, REVISION)


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "empty file"), (b"<html>404</html>", "no SIF file"), (SIF, None)]
)
def test_an_image_that_cannot_be_one_is_refused(
    tmp_path: Path, content: bytes, says: str | None
) -> None:
    image = tmp_path / "vllm.sif"
    image.write_bytes(content)
    problem = image_problem(image)
    assert problem is None if says is None else says in str(problem)
    serve = ServeSpec(runtime="apptainer", image=str(image))
    spec = ModelSpec(name="m", kind="vllm", repo=REPO, serve=serve)
    assert ("serve.image" in missing_parts(spec)) is (says is not None)
