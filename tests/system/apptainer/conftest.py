"""Containers for an ordinary user's tests.

Root does not collect them, since what they show is what somebody without rights may do: root's
run of `tests/system/test_apptainer.py` runs this folder as another user.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests of other folders are run here too; they have to be known as such before they are imported.
pytest.register_assert_rewrite(
    "tests.sandbox.promises", "tests.grading.test_harness", "tests.benchmarks.test_harbor_grading"
)

from pipeline.sandbox.apptainer import ApptainerSandboxes  # noqa: E402
from pipeline.sandbox.box import Box  # noqa: E402
from pipeline.sandbox.images import ImageStore  # noqa: E402
from tests.sandbox.promises import LIMITS, ROW, materialise  # noqa: E402
from tests.system.apptainer.toy_image import REMEDY, toy_image, toy_rootfs  # noqa: E402

if os.geteuid() == 0:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def needs_apptainer(require: Callable[..., None]) -> None:
    require("apptainer", shutil.which("apptainer"), remedy=REMEDY)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a short-named folder on a real disk: images and sandboxes go there."""
    return tmp_path_factory.mktemp("apptainer")


@pytest.fixture(scope="session")
def rootfs(work: Path) -> Path:
    """Return the toy image's root folder."""
    return toy_rootfs(work / "rootfs")


@pytest.fixture(scope="session")
def images(work: Path, rootfs: Path) -> ImageStore:
    """Return a store with the toy image in it."""
    return toy_image(rootfs, work / "images")


@pytest.fixture(scope="session")
def root(work: Path) -> Path:
    return work / "boxes"


@pytest.fixture
def factory(root: Path, images: ImageStore) -> ApptainerSandboxes:
    return ApptainerSandboxes(
        root, images, checkout=materialise, limits=LIMITS, keep_free_bytes=1 << 30
    )


@pytest.fixture
def bare(root: Path, images: ImageStore) -> ApptainerSandboxes:
    """Return a factory whose containers have the image's own /testbed."""
    return ApptainerSandboxes(root, images, limits=LIMITS, keep_free_bytes=1 << 30)


@pytest.fixture
def sandbox(factory: ApptainerSandboxes) -> Iterator[Box]:
    box = factory.start(ROW, purpose="rollout")
    yield box
    box.stop()
