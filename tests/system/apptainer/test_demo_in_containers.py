"""The demo with rollouts and gradings in containers, beside the demo in local copies."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from pipeline import grade, stage
from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.records.layout import Layout
from pipeline.sandbox.local import bubblewrap_works
from tests.sandbox.promises import leftovers
from tests.system.apptainer.toy_image import PROJECT

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(900)]

N_RUNS = 96
OF_A_RUN = ("exit_status", "failure_class", "n_steps", "n_calls", "input_tokens", "output_tokens")
OF_A_PATCH = ("patch", "limit_patch")
OF_A_GRADE = ("grade_class", "resolved", "f2p_passed", "p2p_passed", "patch_sha256")

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def launched(folder: Path, rootfs: Path, require: Callable[..., None]) -> dict[str, Layout]:
    """Return the folders of the same sweep, `local` and `apptainer`, run side by side."""
    require("bubblewrap", bubblewrap_works(), remedy="`apt-get install bubblewrap` brings it")
    images = folder / "images"
    assert stage.main(["images", "--toy", "--root", str(rootfs), "--to", str(images)]) == 0

    def launch(sandbox: str) -> Layout:
        words = ["+sweep=demo", f"sandbox={sandbox}", f"results={folder / sandbox}"]
        words += [f"cluster.images={images}", f"cluster.scratch={folder / 'scratch'}"]
        argv = [sys.executable, "-m", "pipeline.launch", *words, "analyze=false"]
        done = run_command(argv, timeout_s=800, env=environment(), cwd=PROJECT)
        assert done.returncode == 0, done.text
        return Layout(folder / sandbox)

    with ThreadPoolExecutor() as pool:
        kinds = ("local", "apptainer")
        return dict(zip(kinds, pool.map(launch, kinds), strict=True))


def rows(layout: Layout, table: str) -> Rows:
    listed = ds.dataset(layout.table(table), format="parquet").to_table().to_pylist()
    return {row["run_id"]: row for row in listed}


def only(found: Rows, columns: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    return {run_id: tuple(row[column] for column in columns) for run_id, row in found.items()}


def test_every_run_goes_as_it_does_in_a_local_copy(launched: dict[str, Layout]) -> None:
    local, contained = (rows(launched[kind], "runs") for kind in ("local", "apptainer"))
    assert len(local) == N_RUNS
    for columns in (OF_A_RUN, OF_A_PATCH):
        assert only(contained, columns) == only(local, columns)


def test_the_same_runs_are_resolved_as_in_local_copies(launched: dict[str, Layout]) -> None:
    local, contained = (rows(launched[kind], "grades") for kind in ("local", "apptainer"))
    assert only(contained, OF_A_GRADE) == only(local, OF_A_GRADE)
    assert len(contained) == N_RUNS
    assert {True, False} == {row["resolved"] for row in contained.values()}


def test_the_containers_image_is_in_the_lock_and_in_every_grade(
    launched: dict[str, Layout],
) -> None:
    digests = {row["image_digest"] for row in rows(launched["apptainer"], "grades").values()}
    (digest,) = digests
    assert digest.startswith("sif-sha256:")
    assert digest in launched["apptainer"].lock.read_text()
    assert {row["image_digest"] for row in rows(launched["local"], "grades").values()} == {None}


def test_every_gold_patch_resolves_in_a_container(
    launched: dict[str, Layout], capsys: pytest.CaptureFixture[str]
) -> None:
    assert grade.main([str(launched["apptainer"].root), "--gold"]) == 0
    assert "gold patches: 12 of 12 resolved here" in capsys.readouterr().out


@pytest.mark.usefixtures("launched")
def test_no_sandbox_is_left(folder: Path) -> None:
    (root,) = (folder / "scratch").glob("planprune-sandboxes*")
    assert leftovers(root) == []
