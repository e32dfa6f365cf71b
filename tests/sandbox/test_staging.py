"""Images get to the site whole, or not at all, and can be told from broken ones."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.benchmarks.rows import image_reference
from pipeline.records.failure import SandboxError
from pipeline.sandbox.fetching import FetchOptions
from pipeline.sandbox.images import ImageRecord, ImageStore, file_stem, sha256_of, verify
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.registry import Registry, RegistryError
from pipeline.sandbox.staging import StagingOptions
from pipeline.sandbox.staging_estimate import Estimate, estimate, require_room
from tests.sandbox.hub import Hub, serving, write_tar

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


def test_a_record_that_is_broken_or_anothers_counts_as_missing(store: ImageStore) -> None:
    put(store, REFERENCE, b"image")
    record = store.folder / f"{file_stem(REFERENCE)}.json"
    for text in ("", "{", "[]", '{"reference": "x"}', record.read_text().replace("jango-1", "j")):
        record.write_text(text)
        assert store.missing([ROW]) == [REFERENCE]
        assert verify(store, [REFERENCE]) == [REFERENCE]


def test_the_manifest_lists_every_image_and_nothing_else(store: ImageStore) -> None:
    put(store, REFERENCE, b"image")
    put(store, "docker.io/x/y:z", b"other")
    (store.folder / "somebody's.json").write_text("[1, 2]")
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


@pytest.mark.parametrize("scheme", ["", "https://", "docker://"])
def test_a_mirror_takes_the_place_of_the_registry(scheme: str) -> None:
    origin = Origin(kind="registry", place=f"{scheme}mirror.example.org:5000/hub/")
    path = REFERENCE.removeprefix("docker.io/")
    assert origin.uri(REFERENCE, None) == f"docker://mirror.example.org:5000/hub/{path}"
    pinned = origin.uri(REFERENCE, DIGEST)
    assert pinned == f"docker://mirror.example.org:5000/hub/{path.removesuffix(':latest')}@{DIGEST}"


def test_archives_are_found_by_name_and_told_apart(tmp_path: Path) -> None:
    origin = Origin(kind="archives", place=str(tmp_path))
    with pytest.raises(SandboxError, match="no archive of"):
        origin.uri(REFERENCE, None)
    path = tmp_path / "sweb.eval.x86_64.django_1776_django-1.tar"
    hub = Hub()
    hub.write_archive(path)
    assert origin.uri(REFERENCE, None) == f"oci-archive:{path}"
    assert origin.archive_digest(REFERENCE) == hub.digest
    write_tar(path, {"manifest.json": b"[]"})
    assert origin.uri(REFERENCE, None) == f"docker-archive:{path}"
    assert origin.archive_digest(REFERENCE) is None


@pytest.mark.parametrize(
    "files",
    [
        None,
        {},
        {"index.json": b"no json"},
        {"index.json": b"{}"},
        {"index.json": b'{"manifests": []}'},
    ],
)
def test_a_broken_archive_is_named(tmp_path: Path, files: dict[str, bytes] | None) -> None:
    path = tmp_path / f"{file_stem(REFERENCE)}.tar"
    if files is None:
        path.write_bytes(b"no archive")
    else:
        write_tar(path, files)
    with pytest.raises(SandboxError, match=f"{path.name} is no OCI or Docker archive"):
        Origin(kind="archives", place=str(tmp_path)).uri(REFERENCE, None)


def test_a_name_with_a_digest_is_pinned_already() -> None:
    pinned = f"{REFERENCE}@{DIGEST}"
    assert Origin(kind="registry").uri(pinned, DIGEST) == f"docker://{pinned}"


def test_an_estimate_that_does_not_fit_is_refused() -> None:
    needed = Estimate(n_images=500, sif_bytes=650 * 10**9, tmp_bytes=0, free_bytes=10**9)
    with pytest.raises(SandboxError, match="about 650 GB and 1 GB are free"):
        require_room(needed)


def test_an_estimate_looks_at_the_archives(store: ImageStore, tmp_path: Path) -> None:
    write_tar(tmp_path / f"{file_stem(REFERENCE)}.tar", {"manifest.json": b"[]"})
    size = (tmp_path / f"{file_stem(REFERENCE)}.tar").stat().st_size
    origin = Origin(kind="archives", place=str(tmp_path))
    # One that is not there is the business of its own fetching.
    needed = estimate(store, ["docker.io/x/absent:1", REFERENCE], origin, StagingOptions())
    assert (needed.n_images, needed.sif_bytes) == (2, 2 * size)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as found:
        yield found


def test_a_registry_is_asked_for_digest_and_size(hub: Hub) -> None:
    registry = Registry(https=False)
    assert registry.digest(f"{hub.host}/owner/image:tag") == hub.digest
    assert registry.digest(f"{hub.host}/owner/image:tag@{hub.digest}") == hub.digest
    described = registry.describe(f"{hub.host}/owner/image:tag")
    assert described.digest == hub.digest
    assert described.layers_bytes == len(hub.layer)


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_a_registry_that_wants_a_password_gets_the_one_in_the_file(
    tmp_path: Path, scheme: str
) -> None:
    with serving(Hub(password="me:secret", scheme=scheme)) as hub:
        reference = f"{hub.host}/owner/image:tag"
        authfile = hub.write_authfile(tmp_path / "auth.json", "me:secret")
        assert Registry(authfile=authfile, https=False).digest(reference) == hub.digest
        for wrong in (None, hub.write_authfile(tmp_path / "wrong.json", "me:guess")):
            with pytest.raises(RegistryError, match="owner/image"):
                Registry(authfile=wrong, https=False).digest(reference)


def test_an_estimate_asks_the_registry_for_some_and_counts_all(store: ImageStore, hub: Hub) -> None:
    references = [f"{hub.host}/owner/{number}:tag" for number in range(10)]
    options = StagingOptions(jobs=2, fetch=FetchOptions(https=False))
    needed = estimate(store, references, Origin(kind="registry"), options)
    assert (needed.n_images, needed.sif_bytes) == (10, 10 * len(hub.layer))
    assert needed.tmp_bytes > 2 * len(hub.layer)


def test_a_registry_without_the_image_is_an_error_with_its_name(hub: Hub) -> None:
    with pytest.raises(RegistryError, match="owner/image:absent"):
        Registry(https=False).digest(f"{hub.host}/owner/image:absent")


def test_a_registry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RegistryError):
        Registry(https=False).digest("127.0.0.1:9/owner/image:tag")


@pytest.mark.parametrize("answer", [b"what?\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]"])
def test_an_answer_that_is_no_registrys_is_an_error(answer: bytes) -> None:
    """An image can be had without; a proxy's page must not stop the others."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(RegistryError, match="owner/image"):
            Registry(https=False).describe(f"127.0.0.1:{server.getsockname()[1]}/owner/image:tag")
        thread.join()


@pytest.mark.parametrize("text", ["", "[]", '{"auths": []}'])
def test_an_auth_file_of_another_form_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "auth.json").write_text(text)
    with pytest.raises(SandboxError, match=r"auth\.json is no auth file"):
        Registry(authfile=tmp_path / "auth.json")
