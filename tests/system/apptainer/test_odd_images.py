"""Images that get in our way: one without bash, and one whose locale warns on every command."""

import shutil
from pathlib import Path

import pytest

from pipeline.records.failure import SandboxError
from pipeline.sandbox.apptainer import ApptainerSandboxes
from tests.sandbox.promises import LIMITS, ROW
from tests.system.apptainer.toy_image import toy_image


@pytest.fixture
def changed(rootfs: Path, tmp_path: Path) -> Path:
    """Return a copy of the toy image's root folder."""
    shutil.copytree(rootfs, tmp_path / "rootfs", symlinks=True)
    return tmp_path / "rootfs"


def test_an_image_without_bash_says_so(changed: Path, tmp_path: Path) -> None:
    for folder in ("bin", "usr/bin"):
        (changed / folder / "bash").unlink(missing_ok=True)
    factory = ApptainerSandboxes(
        tmp_path / "boxes", toy_image(changed, tmp_path / "images"), limits=LIMITS
    )
    with pytest.raises(SandboxError, match=r"toy\.sif: the image has no bash"):
        factory.start(ROW, purpose="rollout")


def test_an_image_whose_locale_warns_on_every_command_is_silent(
    changed: Path, tmp_path: Path
) -> None:
    folder = changed / ".singularity.d" / "env"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "91-locale.sh"
    script.write_text("export LC_ALL=zz_ZZ.UTF-8\n")
    script.chmod(0o755)
    factory = ApptainerSandboxes(
        tmp_path / "boxes", toy_image(changed, tmp_path / "images"), limits=LIMITS
    )
    for purpose, locale in (("rollout", "C"), ("grade", "zz_ZZ.UTF-8")):
        box = factory.start(ROW, purpose=purpose)  # type: ignore[arg-type]
        # The toy image has no locale at all.
        result = box.execute("echo SUBMIT && echo $LC_ALL", timeout_s=20, whole_after=b"SUBMIT")
        assert (result.output, result.whole) == (
            f"SUBMIT\n{locale}\n",
            f"SUBMIT\n{locale}\n".encode(),
        )
        box.stop()
