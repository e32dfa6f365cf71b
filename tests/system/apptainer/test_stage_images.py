"""Images are fetched whole or not at all, from wherever they are, by the real runtime."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import stage
from pipeline.benchmarks.rows import image_reference
from pipeline.host.process import run_command
from pipeline.sandbox.fetching import FetchOptions
from pipeline.sandbox.images import ImageStore, verify
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.staging import StagingOptions, StagingReport, stage_images
from tests.sandbox.hub import Hub, serving
from tests.sandbox.promises import soon

pytestmark = pytest.mark.apptainer

REGISTRY = Origin(kind="registry")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images", image_reference)


def staged(
    store: ImageStore, references: list[str], origin: Origin, **options: Any
) -> tuple[StagingReport, list[str]]:
    """Return what came of it and the lines that were told."""
    of_fetch = {"https": False, **{k: options.pop(k) for k in ("authfile", "tmp") if k in options}}
    lines: list[str] = []
    report = stage_images(
        store,
        references,
        origin,
        options=StagingOptions(fetch=FetchOptions(**of_fetch), **options),
        tell=lines.append,
        rng=random.Random(0),
    )
    return report, lines


def content(store: ImageStore, reference: str) -> str:
    """Return what is in the file that the hub's image has."""
    record = store.find(reference)
    assert record is not None
    sif = store.folder / record.file
    unpacked = sif.with_suffix(".unpacked")
    run_command(["apptainer", "build", "--sandbox", str(unpacked), str(sif)], timeout_s=60)
    return (unpacked / "etc" / "made-for-a-test").read_text()


def test_an_image_is_fetched_verified_and_recorded(
    store: ImageStore, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(home / "cache"))
    references = [f"{hub.host}/owner/image:tag", f"{hub.host}/owner/image:absent"]
    report, _ = staged(store, references, REGISTRY)
    assert (report.staged, list(report.failed)) == (references[:1], references[1:])
    record = store.find(references[0])
    assert record is not None
    assert record.manifest_digest == hub.digest
    assert record.source.endswith(f"@{hub.digest}")
    assert verify(store, references) == references[1:]
    names = {path.name for path in store.folder.iterdir()}
    assert names == {record.file, record.file.replace(".sif", ".json"), "manifest.json"}
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert content(store, references[0]) == "yes"


def test_what_is_there_is_not_fetched_again(store: ImageStore, hub: Hub) -> None:
    references = [f"{hub.host}/owner/image:tag"]
    staged(store, references, REGISTRY)
    asked = hub.asked.copy()
    report, lines = staged(store, references, REGISTRY)
    assert (report.staged, lines) == ([], ["1 of 1 image here already"])
    assert hub.asked == asked


def test_a_refusal_is_tried_again_after_a_while(store: ImageStore, hub: Hub) -> None:
    hub.n_refusals = 2  # the question for the digest, and the first try
    references = [f"{hub.host}/owner/image:tag"]
    report, lines = staged(store, references, REGISTRY, patience_s=(0.0, 0.1))
    assert report.staged == references
    assert sum("again in" in line for line in lines) == 1


def test_an_image_that_does_not_exist_is_not_waited_for(store: ImageStore, hub: Hub) -> None:
    references = [f"{hub.host}/owner/image:absent"]
    report, lines = staged(store, references, REGISTRY)
    assert list(report.failed) == references
    assert not [line for line in lines if "again in" in line]


def test_a_password_is_used_when_asked(store: ImageStore, tmp_path: Path) -> None:
    with serving(Hub(password="me:secret")) as hub:
        references = [f"{hub.host}/owner/image:tag"]
        report, _ = staged(store, references, REGISTRY)
        assert list(report.failed) == references
        authfile = hub.write_authfile(tmp_path / "auth.json", "me:secret")
        report, _ = staged(store, references, REGISTRY, authfile=authfile)
        assert report.staged == references
        assert "secret" not in (store.folder / "manifest.json").read_text()


def test_a_mirror_and_archives_stand_in_for_the_registry(
    store: ImageStore, hub: Hub, tmp_path: Path
) -> None:
    references = [f"docker.io/owner/{name}:1" for name in ("one", "two", "three", "four")]
    mirror = Origin(kind="registry", place=f"{hub.host}/mirror")
    report, _ = staged(store, references[:1], mirror)
    assert report.staged == references[:1]
    (archives := tmp_path / "archives").mkdir()
    hub.write_archive(archives / "two.tar")
    hub.write_docker_archive(archives / "three.tar")
    (archives / "four.tar").write_bytes(b"no archive")
    report, _ = staged(store, references, Origin(kind="archives", place=str(archives)))
    assert (sorted(report.staged), list(report.failed)) == (sorted(references[1:3]), references[3:])
    assert [content(store, reference) for reference in references[:3]] == ["yes"] * 3
    manifest = json.loads((store.folder / "manifest.json").read_bytes())
    digests = {entry["reference"]: entry["manifest_digest"] for entry in manifest}
    # What `docker save` writes has no manifest of a registry's.
    assert digests == dict(zip(references[:3], (hub.digest, hub.digest, None), strict=True))


def test_one_root_folder_serves_for_every_image(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "made-for-a-test").write_text("x")
    references = ["docker.io/a/one:latest", "docker.io/a/two:latest"]
    report, _ = staged(store, references, Origin(kind="root", place=str(tmp_path / "root")))
    assert sorted(report.staged) == references
    assert len({store.find(reference).file for reference in references}) == 1  # type: ignore[union-attr]
    assert content(store, references[1]) == "x"


def test_unpacking_elsewhere_leaves_nothing_there(
    store: ImageStore, hub: Hub, tmp_path: Path
) -> None:
    references = [f"{hub.host}/owner/image:tag"]
    report, _ = staged(store, references, REGISTRY, tmp=tmp_path / "deep" / "tmp")
    assert report.staged == references
    assert list((tmp_path / "deep" / "tmp").iterdir()) == []


def test_an_interrupt_stops_the_downloads_and_tidies_up(store: ImageStore, hub: Hub) -> None:
    def tell(line: str) -> None:
        if "owner/first" in line:
            raise KeyboardInterrupt

    references = [f"{hub.host}/owner/{name}:tag" for name in ("first", "second", "third")]
    with pytest.raises(KeyboardInterrupt):
        stage_images(
            store,
            references,
            REGISTRY,
            options=StagingOptions(jobs=1, pause_s=0.5, fetch=FetchOptions(https=False)),
            tell=tell,
            rng=random.Random(0),
        )
    assert store.find(references[0]) is not None
    assert store.find(references[2]) is None
    assert [path.name for path in store.folder.iterdir() if path.name.startswith(".")] == []


def test_a_killed_call_is_taken_up_by_the_next(
    store: ImageStore, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "instance_id": f"owner__{name}",
            "image": f"{hub.host}/owner/{name}:tag",
            **{"log_parser": "parse_log_pytest", "eval_type": "pass_and_fail"},
            **{"FAIL_TO_PASS": '["test"]', "PASS_TO_PASS": "[]"},
            **dict.fromkeys(("repo", "version", "eval_script", "base_commit"), "x"),
            **dict.fromkeys(("problem_statement", "patch", "test_patch"), "x"),
        }
        for name in ("first", "second")
    ]
    dataset = tmp_path / "rows.json"
    dataset.write_text(json.dumps(rows))
    words = ["images", "--dataset", str(dataset), "--to", str(store.folder), "--no-https"]
    words += ["--tmp", str(tmp_path / "tmp"), "--jobs", "2"]
    hub.gate.clear()
    killed = subprocess.Popen(
        [sys.executable, "-m", "pipeline.stage", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert soon(lambda: hub.asked["blob"] == 2)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert [path for path in (tmp_path / "tmp").iterdir() if ".part" in path.name]
    hub.gate.set()
    assert stage.main(words) == 0
    assert "2 staged, 0 failed" in capsys.readouterr().out
    assert list((tmp_path / "tmp").iterdir()) == []
    assert stage.main([*words, "--verify"]) == 0
