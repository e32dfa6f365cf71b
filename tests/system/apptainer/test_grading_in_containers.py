"""The rules of grading in real containers: the tests of tests/grading with another sandbox."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.box import Box
from pipeline.sandbox.images import ImageStore
from tests.grading.conftest import patch_of, repository, row  # noqa: F401 (fixtures)
from tests.grading.test_harness import (  # noqa: F401
    test_a_failed_try_leaves_nothing_for_the_next,
    test_a_log_longer_than_a_commands_output_is_read_whole,
    test_a_patch_that_breaks_a_test_is_unresolved,
    test_a_patch_that_is_applied_already_counts_as_applied,
    test_a_patch_that_only_fuzz_can_place_applies,
    test_a_process_that_the_tests_leave_behind_is_not_waited_for,
    test_every_kind_of_patch_applies,
    test_output_that_is_no_utf8_is_no_obstacle,
    test_tests_that_clear_the_temporary_folder_are_graded_all_the_same,
    test_tests_that_run_too_long_are_a_timeout_with_the_log_so_far,
    test_text_that_is_no_patch_fails_to_apply,
)
from tests.system.apptainer.toy_image import REFERENCE

pytestmark = pytest.mark.apptainer


@pytest.fixture
def sandbox(root: Path, images: ImageStore, repository: Path) -> Iterator[Box]:  # noqa: F811
    def checkout(_: object, folder: Path) -> None:
        shutil.copytree(repository, folder, symlinks=True, dirs_exist_ok=True)

    factory = ApptainerSandboxes(root, images, checkout=checkout, keep_free_bytes=1 << 30)
    box = factory.start({"instance_id": REFERENCE}, purpose="grade")
    yield box
    box.stop()
