"""Images get to the site whole, or not at all, and can be told from broken ones."""

import io
import json
import random
import shutil
import tarfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline.benchmarks.rows import image_reference
from pipeline.host.environment import environment
from pipeline.records.failure import SandboxError
from pipeline.sandbox.images import ImageRecord, ImageStore, file_stem
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.registry import Registry, RegistryError
from pipeline.sandbox.staging import (
    Estimate,
    StagingOptions,
    estimate,
    require_room,
    sha256_of,
    verify,
)

REFERENCE = "docker.io/swebench/sweb.eval.x86_64.django_1776_django-1:latest"
ROW = {"instance_id": "django__django-1", "image": REFERENCE.removeprefix("docker.io/")}
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path, image_reference)


def put(store: ImageStore, reference: str, content: bytes) -> ImageRecord:
    file = store.folder / f"{file_stem(reference)}.sif"
    file.write_bytes(content)
    record = ImageRecord(
        reference=reference,
        file=file.name,
        sif_sha256=sha256_of(file),
        sif_bytes=len(content),
        source="test",
        manifest_digest=None,
    )
    store.write_record(record)
    return record


def test_a_missing_image_names_the_command_that_brings_it(store: ImageStore) -> None:
    with pytest.raises(SandboxError, match=r"pipeline\.stage images .*--only django__django-1"):
        store.sif_for(ROW)


def test_a_staged_image_is_found_by_its_row(store: ImageStore) -> None:
    record = put(store, REFERENCE, b"image")
    assert store.sif_for(ROW).read_bytes() == b"image"
    assert store.sif_digest(ROW) == f"sha256:{record.sif_sha256}"
    assert store.digest(ROW) == f"sif-sha256:{record.sif_sha256}"
    assert store.missing([ROW]) == []


def test_an_image_cut_short_counts_as_missing(store: ImageStore) -> None:
    record = put(store, REFERENCE, b"image")
    (store.folder / record.file).write_bytes(b"ima")
    assert store.missing([ROW, ROW]) == [REFERENCE]


def test_a_changed_image_does_not_verify(store: ImageStore) -> None:
    record = put(store, REFERENCE, b"image")
    assert verify(store, [REFERENCE]) == []
    (store.folder / record.file).write_bytes(b"imagE")
    assert verify(store, [REFERENCE]) == [REFERENCE]


def test_the_manifest_lists_every_image(store: ImageStore) -> None:
    put(store, REFERENCE, b"image")
    put(store, "docker.io/x/y:z", b"other")
    store.write_manifest()
    names = {
        entry["reference"] for entry in json.loads((store.folder / "manifest.json").read_bytes())
    }
    assert names == {REFERENCE, "docker.io/x/y:z"}


def test_a_registry_image_is_pinned_to_its_digest() -> None:
    origin = Origin(kind="registry")
    repository = REFERENCE.removesuffix(":latest")
    assert origin.uri(REFERENCE, DIGEST) == f"docker://{repository}@{DIGEST}"
    assert origin.uri(REFERENCE, None) == f"docker://{REFERENCE}"


def test_a_mirror_takes_the_place_of_the_registry() -> None:
    origin = Origin(kind="registry", place="mirror.example.org:5000/hub/")
    path = REFERENCE.removeprefix("docker.io/")
    assert origin.uri(REFERENCE, None) == f"docker://mirror.example.org:5000/hub/{path}"
    pinned = origin.uri(REFERENCE, DIGEST)
    assert pinned == f"docker://mirror.example.org:5000/hub/{path.removesuffix(':latest')}@{DIGEST}"


def archive(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_archives_are_found_by_name_and_told_apart(tmp_path: Path) -> None:
    origin = Origin(kind="archives", place=str(tmp_path))
    with pytest.raises(SandboxError, match="no archive of"):
        origin.uri(REFERENCE, None)
    path = tmp_path / "sweb.eval.x86_64.django_1776_django-1.tar"
    archive(path, {"index.json": json.dumps({"manifests": [{"digest": DIGEST}]}).encode()})
    assert origin.uri(REFERENCE, None) == f"oci-archive:{path}"
    assert origin.archive_digest(REFERENCE) == DIGEST
    archive(path, {"manifest.json": b"[]"})
    assert origin.uri(REFERENCE, None) == f"docker-archive:{path}"
    assert origin.archive_digest(REFERENCE) is None


def test_an_estimate_that_does_not_fit_is_refused() -> None:
    needed = Estimate(n_images=500, sif_bytes=650 * 10**9, tmp_bytes=0, free_bytes=10**9)
    with pytest.raises(SandboxError, match="about 650 GB and 1 GB are free"):
        require_room(needed)


def test_an_estimate_looks_at_the_archives(store: ImageStore, tmp_path: Path) -> None:
    archive(tmp_path / f"{file_stem(REFERENCE)}.tar", {"manifest.json": b"[]"})
    size = (tmp_path / f"{file_stem(REFERENCE)}.tar").stat().st_size
    needed = estimate(
        store, [REFERENCE], Origin(kind="archives", place=str(tmp_path)), StagingOptions()
    )
    assert (needed.n_images, needed.sif_bytes) == (1, size)


class FakeHub(BaseHTTPRequestHandler):
    """A registry with one image, that wants a token and may be out of patience."""

    blobs: dict[str, bytes]
    manifest: bytes

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        host = self.headers["Host"]
        if self.path.startswith("/token"):
            self.reply(b'{"token": "secret"}', "application/json", with_body=with_body)
        elif self.headers.get("Authorization") != "Bearer secret":
            self.send_response(401)
            challenge = f'Bearer realm="http://{host}/token",service="test",scope="pull"'
            self.send_header("WWW-Authenticate", challenge)
            self.end_headers()
        elif "/manifests/" in self.path and self.path.rpartition("/")[2] != "absent":
            media = "application/vnd.oci.image.manifest.v1+json"
            self.reply(self.manifest, media, with_body=with_body)
        elif (digest := self.path.rpartition("/")[2]) in self.blobs:
            self.reply(self.blobs[digest], "application/octet-stream", with_body=with_body)
        else:
            self.send_error(404)

    def reply(self, body: bytes, media: str, *, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", f"sha256:{sha256(body).hexdigest()}")
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def hub_content() -> tuple[bytes, dict[str, bytes]]:
    """Return a manifest and the blobs of an image with one file."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w:gz") as tar:
        info = tarfile.TarInfo("etc/made-for-a-test")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"yes"))
    diff = sha256(__import__("gzip").decompress(layer.getvalue())).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
    }
    blobs = {}
    entries = []
    for data, media in (
        (json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        (layer.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip"),
    ):
        digest = f"sha256:{sha256(data).hexdigest()}"
        blobs[digest] = data
        entries.append({"mediaType": media, "digest": digest, "size": len(data)})
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": entries[0],
        "layers": entries[1:],
    }
    return json.dumps(manifest).encode(), blobs


@pytest.fixture
def hub() -> Iterator[str]:
    """Return the address of a registry on this machine."""
    FakeHub.manifest, FakeHub.blobs = hub_content()
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_is_asked_for_digest_and_size(hub: str) -> None:
    registry = Registry(https=False)
    digest = f"sha256:{sha256(FakeHub.manifest).hexdigest()}"
    assert registry.digest(f"{hub}/owner/image:tag") == digest
    described = registry.describe(f"{hub}/owner/image:tag")
    assert described.digest == digest
    assert described.layers_bytes == len(list(FakeHub.blobs.values())[1])


def test_a_registry_without_the_image_is_an_error_with_its_name(hub: str) -> None:
    with pytest.raises(RegistryError, match="owner/image:absent"):
        Registry(https=False).digest(f"{hub}/owner/image:absent")


def test_a_registry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RegistryError):
        Registry(https=False).digest("127.0.0.1:9/owner/image:tag")


# --- with a real runtime -------------------------------------------------------------------------
def stage(store: ImageStore, references: list[str], origin: Origin, **options: Any) -> Any:
    from pipeline.sandbox.staging import stage_images

    lines: list[str] = []
    report = stage_images(
        store,
        references,
        origin,
        options=StagingOptions(**options),
        tell=lines.append,
        rng=random.Random(0),
    )
    return report, lines


@pytest.fixture
def runtime() -> None:
    if shutil.which("apptainer") is None:
        message = "apptainer is not here; `tests/system/install_apptainer.sh FOLDER` brings it"
        if "apptainer" in environment().get("REQUIRE", ""):
            pytest.fail(f"{message} (REQUIRE names it)")
        pytest.skip(message)


@pytest.mark.apptainer
@pytest.mark.usefixtures("runtime")
def test_an_image_is_fetched_verified_and_recorded(store: ImageStore, hub: str) -> None:
    references = [f"{hub}/owner/image:tag", f"{hub}/owner/image:absent"]
    origin = Origin(kind="registry")
    report, _ = stage(store, references, origin, https=False, tries=1)
    assert report.staged == references[:1]
    assert list(report.failed) == references[1:]
    record = store.find(references[0])
    assert record is not None
    assert record.manifest_digest == f"sha256:{sha256(FakeHub.manifest).hexdigest()}"
    assert record.source.endswith(f"@{record.manifest_digest}")
    assert verify(store, references) == references[1:]
    names = {path.name for path in store.folder.iterdir()}
    assert names == {record.file, record.file.replace(".sif", ".json"), "manifest.json"}


@pytest.mark.apptainer
@pytest.mark.usefixtures("runtime")
def test_what_is_there_is_not_fetched_again(store: ImageStore, hub: str) -> None:
    references = [f"{hub}/owner/image:tag"]
    stage(store, references, Origin(kind="registry"), https=False, tries=1)
    report, lines = stage(store, references, Origin(kind="registry"), https=False, tries=1)
    assert report.staged == []
    assert lines == ["1 of 1 images are here already"]


@pytest.mark.apptainer
@pytest.mark.usefixtures("runtime")
def test_a_refusal_is_tried_again_after_a_while(store: ImageStore, hub: str) -> None:
    references = [f"{hub}/owner/image:absent"]
    report, lines = stage(
        store, references, Origin(kind="registry"), https=False, tries=3, patience_s=(0.0, 0.1)
    )
    assert list(report.failed) == references
    assert sum("again in" in line for line in lines) == 2


@pytest.mark.apptainer
@pytest.mark.usefixtures("runtime")
def test_one_root_folder_serves_for_every_image(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "file").write_text("x")
    images = ImageStore(tmp_path / "images", image_reference)
    references = ["docker.io/a/one:latest", "docker.io/a/two:latest"]
    report, _ = stage(images, references, Origin(kind="root", place=str(root)))
    assert sorted(report.staged) == references
    assert images.find(references[0]).file == images.find(references[1]).file  # type: ignore[union-attr]


@pytest.mark.apptainer
@pytest.mark.usefixtures("runtime")
def test_an_interrupt_stops_the_downloads_and_tidies_up(store: ImageStore, hub: str) -> None:
    from pipeline.sandbox.staging import stage_images

    def tell(line: str) -> None:
        if "owner/first" in line:
            raise KeyboardInterrupt

    references = [f"{hub}/owner/{name}:tag" for name in ("first", "second", "third")]
    with pytest.raises(KeyboardInterrupt):
        stage_images(
            store,
            references,
            Origin(kind="registry"),
            options=StagingOptions(jobs=1, https=False, tries=1, pause_s=0.5),
            tell=tell,
            rng=random.Random(0),
        )
    assert store.find(references[0]) is not None
    assert store.find(references[2]) is None
    assert [path.name for path in store.folder.iterdir() if path.name.startswith(".")] == []
