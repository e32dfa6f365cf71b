"""The toy image of these tests: its root folder and the file made of it, without a network."""

from pathlib import Path

from pipeline.host.process import run_command
from pipeline.sandbox.images import ImageRecord, ImageStore, sha256_of

PROJECT = Path(__file__).parents[3]
REFERENCE = "docker.io/planprune/toy.test:latest"
REMEDY = "`tests/system/install_apptainer.sh WORK_FOLDER` brings it on Debian 12 (root)"


def reference_of(_: object) -> str:
    return REFERENCE


def toy_rootfs(folder: Path) -> Path:
    """Return a new root folder at `folder`, made by the recipe that users are given."""
    script = PROJECT / "containers" / "toy_rootfs.sh"
    made = run_command(["bash", str(script), str(folder)], timeout_s=300)
    assert made.returncode == 0, made.text
    return folder


def toy_image(rootfs: Path, folder: Path, *, squashfs: str = "") -> ImageStore:
    """Return a store in a new `folder` with the image of `rootfs` in it.

    `squashfs` are further options for how the image is packed.
    """
    folder.mkdir()
    sif = folder / "toy.sif"
    options = f"-Xcompression-level 1 {squashfs}"
    build = ["apptainer", "build", "--mksquashfs-args", options, str(sif), str(rootfs)]
    built = run_command(build, timeout_s=600)
    assert built.returncode == 0, built.text
    store = ImageStore(folder, reference_of)
    store.write_record(
        ImageRecord(
            reference=REFERENCE,
            file=sif.name,
            sif_sha256=sha256_of(sif),
            sif_bytes=sif.stat().st_size,
            source=str(rootfs),
            manifest_digest=None,
        )
    )
    return store
