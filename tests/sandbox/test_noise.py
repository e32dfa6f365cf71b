"""An image that prints by itself: mended, cut off, or refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.protocols import Purpose
from pipeline.records.failure import SandboxError
from pipeline.sandbox.box import Box
from pipeline.sandbox.local import LocalSandboxes

SUBMIT = "echo SUBMIT && printf 'a\\nb\\n'"


def started(tmp_path: Path, environment: str, purpose: Purpose = "rollout") -> Box:
    """Return a sandbox whose commands find `environment`, as an image's would be."""

    def materialise(_row: Mapping[str, Any], folder: Path) -> None:
        (folder.parent / "control" / "environment").write_text(environment)
        (folder / "noisy").write_text("echo noise; export FROM_PROFILE=yes\n")

    return LocalSandboxes(tmp_path / "root", materialise).start({}, purpose=purpose)


def test_a_locale_that_the_image_lacks_is_replaced_and_outputs_are_clean(tmp_path: Path) -> None:
    box = started(tmp_path, "export LC_ALL=zz_ZZ.UTF-8\n")
    result = box.execute(SUBMIT, timeout_s=20, whole_after=b"SUBMIT")
    assert (result.output, result.whole) == ("SUBMIT\na\nb\n", b"SUBMIT\na\nb\n")
    assert box.execute("bash -c 'echo $LC_ALL'", timeout_s=20).output == "C.UTF-8\n"
    box.stop()


def test_grading_keeps_the_images_locale_and_still_has_clean_outputs(tmp_path: Path) -> None:
    box = started(tmp_path, "export LC_ALL=zz_ZZ.UTF-8\n", "grade")
    assert box.execute("echo $LC_ALL", timeout_s=20).output == "zz_ZZ.UTF-8\n"
    box.stop()


def test_what_a_profile_prints_is_cut_off_and_what_it_sets_is_kept(tmp_path: Path) -> None:
    box = started(tmp_path, "export BASH_ENV=./noisy\n")
    result = box.execute(SUBMIT, timeout_s=20, whole_after=b"SUBMIT")
    assert (result.output, result.whole) == ("SUBMIT\na\nb\n", b"SUBMIT\na\nb\n")
    assert result.stream_bytes == len("SUBMIT\na\nb\n")
    look = "echo $FROM_PROFILE; env | grep -c SANDBOX_MARK"
    assert box.execute(look, timeout_s=20).output == "yes\n0\n"
    # A shell that a command killed is started again in the same way.
    box.execute("kill -9 $PPID", timeout_s=20)
    assert box.execute("echo again", timeout_s=20).output == "again\n"
    box.stop()


def test_noise_that_nothing_takes_away_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"prints .*absent\.so.*LD_PRELOAD"):
        started(tmp_path, "export LD_PRELOAD=/absent.so\n")
    assert not list((tmp_path / "root").glob("sandbox-*"))


def test_a_quiet_sandbox_is_left_as_it_is(tmp_path: Path) -> None:
    box = started(tmp_path, "export LC_ALL=C.UTF-8\n")
    assert box.execute("echo $LC_ALL$BASH_ENV", timeout_s=20).output == "C.UTF-8\n"
    box.stop()
