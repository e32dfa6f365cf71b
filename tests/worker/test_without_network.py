"""Evaluations that install their package where nothing can be fetched: real pip, real sandboxes."""

import base64
import hashlib
import importlib.util
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.grading.environments import INSTALLED, WHEELS
from pipeline.grading.evaluation import NEEDS_NETWORK, EvalSite, eval_site, evaluate
from pipeline.grading.verdict import Grade
from pipeline.host.process import run_command
from pipeline.records.failure import GradeClass, SandboxError
from pipeline.sandbox.local import LocalSandboxes
from pipeline.spec.site import SiteSpec
from pipeline.worker.sandboxes import OpenSandboxes

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ensurepip") is None, reason="this Python cannot make an environment"
)

BACKEND = '''
"""A build backend that writes a wheel whose one module is made from the sources."""
import os, zipfile

NAME = "tiny-1-py3-none-any.whl"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "tiny-1.dist-info/"
    verdict = "PASSED" if "hello" in open("source.txt").read() else "FAILED"
    with zipfile.ZipFile(os.path.join(folder, NAME), "w") as wheel:
        wheel.writestr("tiny_built.py", f"VERDICT = {verdict!r}")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        wheel.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        )
        wheel.writestr(info + "RECORD", "")
    return NAME

build_editable = build_wheel
'''

PROJECT = """
[build-system]
requires = ["tinybackend"]
build-backend = "tinybackend"
[project]
name = "tiny"
version = "1"
"""

# Neither this machine's configuration nor a network that it has may help.
EVAL_SCRIPT = """#!/bin/bash
set -uxo pipefail
export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:9/simple
venv/bin/python -m pip install -e .
: '>>>>> Start Test Output'
venv/bin/python -c 'import tiny_built as t; print(t.VERDICT, "t.py::a")'
: '>>>>> End Test Output'
"""

ROW = {
    "instance_id": "local__tiny-1",
    "repo": "local/tiny",
    "version": "1",
    "image": "none",
    "eval_script": EVAL_SCRIPT,
    "log_parser": "parse_log_pytest",
    "eval_type": "pass_and_fail",
    "FAIL_TO_PASS": json.dumps(["t.py::a"]),
    "PASS_TO_PASS": json.dumps([]),
}

PATCH = """diff --git a/source.txt b/source.txt
--- a/source.txt
+++ b/source.txt
@@ -1 +1 @@
-good bye
+hello
"""

Sandboxes = Callable[..., OpenSandboxes]


def run(folder: Path, *argv: str) -> None:
    done = run_command(list(argv), timeout_s=120, cwd=folder)
    assert done.returncode == 0, done.text


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that is built from its sources, and an environment that cannot build it."""
    folder = tmp_path_factory.mktemp("repository")
    run(folder, sys.executable, "-m", "venv", "venv")
    (folder / ".gitignore").write_text("venv\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "source.txt").write_text("good bye\n")
    run(folder, "git", "init", "-q")
    run(folder, "git", "add", ".")
    names = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    run(folder, "git", *names, "commit", "-qm", "start")
    return folder


@pytest.fixture
def sandboxes(repository: Path, tmp_path: Path) -> Iterator[Sandboxes]:
    """Returns a function that gives local sandboxes without network."""
    opened: list[OpenSandboxes] = []

    def make(*, with_backend: bool = False) -> OpenSandboxes:
        def materialise(row: Any, target: Path) -> None:  # noqa: ARG001 (the factory's)
            shutil.copytree(repository, target, symlinks=True, dirs_exist_ok=True)
            if with_backend:
                site = next(target.glob("venv/lib/python3*/site-packages"))
                (site / "tinybackend.py").write_text(BACKEND)

        factory = LocalSandboxes(tmp_path / "boxes", materialise, network={"grade": False})
        opened.append(OpenSandboxes(factory))
        return opened[-1]

    yield make
    for each in opened:
        each.stop_all()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels with the build tool in it."""
    folder = tmp_path_factory.mktemp("wheels")
    info = "tinybackend-1.dist-info"
    files = {
        "tinybackend.py": BACKEND,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinybackend\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {
        name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for name, text in files.items()
    }
    record = "".join(f"{n},sha256={hashes[n]},{len(t.encode())}\n" for n, t in files.items())
    with zipfile.ZipFile(folder / "tinybackend-1-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(name, text)
    return folder


def graded(row: Any, patch: str, boxes: OpenSandboxes, site: EvalSite, timeout_s: float) -> Grade:
    start = partial(boxes.start, row, "grade")
    return evaluate(row, patch, start, site, timeout_s=timeout_s)


def test_the_tools_of_the_image_build_what_isolation_could_not(sandboxes: Sandboxes) -> None:
    grade = graded(ROW, PATCH, sandboxes(with_backend=True), EvalSite(network=False), timeout_s=60)
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output
    assert grade.environment == INSTALLED.name
    assert "Successfully installed tiny-1" in grade.test_output


def test_staged_wheels_come_before_the_tools_of_the_image(
    sandboxes: Sandboxes, wheels: Path
) -> None:
    site = eval_site(SiteSpec(name="x", kind="local", network_grade=False, wheels=str(wheels)))
    grade = graded(ROW, PATCH, sandboxes(), site, timeout_s=60)
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output
    assert grade.environment == WHEELS.name


def test_a_wrong_patch_is_unresolved_once_its_package_is_built(sandboxes: Sandboxes) -> None:
    wrong = PATCH.replace("+hello", "+good night")
    boxes = sandboxes(with_backend=True)
    grade = graded(ROW, wrong, boxes, EvalSite(network=False), timeout_s=60)
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.environment == INSTALLED.name


def test_where_nothing_works_it_is_our_failure_and_says_what_was_tried(
    sandboxes: Sandboxes,
) -> None:
    grade = graded(ROW, PATCH, sandboxes(), EvalSite(network=False), timeout_s=60)
    assert grade.grade_class is GradeClass.GRADE_INFRA
    assert grade.resolved is None
    assert grade.reason.startswith(f"{NEEDS_NETWORK}: official: ERROR: Could not find a version")
    assert "installed: " in grade.reason
    assert "tinybackend" in grade.reason.partition("installed: ")[2]
    assert grade.report["infra_failure_reason"] == grade.reason
    assert grade.test_output


def test_a_network_that_is_meant_to_work_and_does_not_is_found_out(sandboxes: Sandboxes) -> None:
    quick = EVAL_SCRIPT.replace("export ", "export PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=1 ")
    row = {**ROW, "eval_script": quick}
    grade = graded(row, PATCH, sandboxes(with_backend=True), EvalSite(), timeout_s=60)
    assert grade.grade_class is GradeClass.RESOLVED
    assert grade.environment == INSTALLED.name


def test_an_installation_that_needs_nothing_is_evaluated_once_as_it_is(
    sandboxes: Sandboxes,
) -> None:
    plain = EVAL_SCRIPT.replace("pip install -e .", "pip install --no-build-isolation -e .")
    row = {**ROW, "eval_script": plain}
    boxes = sandboxes(with_backend=True)
    grade = graded(row, PATCH, boxes, EvalSite(network=False), timeout_s=60)
    assert grade.grade_class is GradeClass.RESOLVED
    assert grade.environment == "official"


def test_a_folder_without_wheels_is_refused_with_what_to_do(tmp_path: Path) -> None:
    site = SiteSpec(name="x", kind="local", wheels=str(tmp_path))
    with pytest.raises(SandboxError, match="pip download -d"):
        eval_site(site)
    assert eval_site(replace(site, wheels=None)) == EvalSite()
