"""What a dry run says of disks."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.disk_estimate import disk_text
from pipeline.sandbox.images import ImageRecord, ImageStore
from pipeline.spec.sweep import SweepSpec


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    return sweep_spec(["+sweep=demo", "sandbox=apptainer", f"cluster.images={tmp_path}"])


def test_images_are_counted_once_and_those_that_are_staged_by_their_size(
    spec: SweepSpec, tmp_path: Path
) -> None:
    rows = [{"instance_id": str(n), "image": f"held/image:{n // 2}"} for n in range(6)]
    (tmp_path / "shared.sif").write_bytes(b"x" * 100_000_000)
    store = ImageStore(tmp_path, lambda row: str(row["image"]))
    for tag in (0, 1):
        store.write_record(
            ImageRecord(
                reference=f"docker.io/held/image:{tag}",
                file="shared.sif",
                sif_sha256="",
                sif_bytes=100_000_000,
                source="",
                manifest_digest=None,
            )
        )
    assert disk_text(spec, rows, 1000) == (
        "3 images: 2 staged (0.1 GB), 1 to stage (about 1 GB); about 60 MB of results"
    )


def test_copies_need_no_image(spec: SweepSpec) -> None:
    assert disk_text(replace(spec, sandbox="local"), [], 500) == "about 30 MB of results"
