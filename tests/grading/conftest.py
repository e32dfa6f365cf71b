"""A repository, its benchmark row, and a sandbox that is nothing but a folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.host.process import hear_interrupts, run_command
from pipeline.protocols import CommandResult

DATA = Path(__file__).parents[2].parent / "shared" / "data"

hear_interrupts()  # pytest in the background of a shell has them ignored

EVAL_SCRIPT = """#!/bin/bash
set -uxo pipefail
: '>>>>> Start Test Output'
bash tests.sh
: '>>>>> End Test Output'
git status --short
"""

# Prints pytest's summary lines without pytest: one test for each line of `expected`.
TESTS = """
status=0
for name in hello count mode; do
  if bash check_$name.sh; then result=PASSED; else result=FAILED; status=1; fi
  echo "$result t.py::$name"
done
exit $status
"""


@dataclass
class FolderSandbox:
    """Commands run in a folder, without any isolation; output is bounded as in a real one."""

    workdir: str
    env: dict[str, str]

    def execute(
        self,
        command: str,
        *,
        timeout_s: float,
        whole_after: bytes | None = None,  # noqa: ARG002
    ) -> CommandResult:
        done = run_command(
            ["/bin/bash", "-c", command],
            timeout_s=timeout_s,
            cwd=Path(self.workdir),
            env=self.env,
            output_limit_bytes=10_000,
        )
        return CommandResult(
            output=done.text,
            returncode=-1 if done.timed_out else done.returncode,
            timed_out=done.timed_out,
            dropped_bytes=done.dropped_bytes,
            wall_s=done.wall_s,
        )

    def upload(self, data: bytes, path: str) -> None:
        (Path(self.workdir) / path).write_bytes(data)

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        with (Path(self.workdir) / path).open("rb") as file:
            return file.read(limit_bytes)

    def stop(self) -> None:
        shutil.rmtree(self.workdir, ignore_errors=True)


def git(folder: Path, *words: str) -> str:
    done = run_command(
        ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *words],
        timeout_s=30,
        cwd=folder,
    )
    assert done.returncode == 0, done.text
    return done.text


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "greeting.txt").write_text("good bye\n")
    (folder / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "numbers.txt").write_text("".join(f"{n}\n" for n in range(1, 40)))
    (folder / "tests.sh").write_text(TESTS)
    (folder / "check_hello.sh").write_text("grep -q hello greeting.txt")
    (folder / "check_count.sh").write_text("[ $(wc -l < numbers.txt) -ge 39 ]")
    (folder / "check_mode.sh").write_text("true")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "start")
    return folder


@pytest.fixture
def row() -> dict[str, Any]:
    return {
        "instance_id": "local__greeting-1",
        "repo": "local/greeting",
        "version": "1",
        "image": "none",
        "eval_script": EVAL_SCRIPT,
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "FAIL_TO_PASS": json.dumps(["t.py::hello"]),
        "PASS_TO_PASS": json.dumps(["t.py::count", "t.py::mode"]),
    }


@pytest.fixture
def sandbox(repository: Path, tmp_path: Path) -> FolderSandbox:
    work = tmp_path / "testbed"
    shutil.copytree(repository, work, symlinks=True)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch)}
    return FolderSandbox(workdir=str(work), env=env)


@pytest.fixture
def patch_of(repository: Path, tmp_path: Path) -> Callable[[Callable[[Path], None]], str]:
    """Returns the diff that a change of the repository leaves."""

    def diff(change: Callable[[Path], None]) -> str:
        copy = tmp_path / "changed"
        shutil.copytree(repository, copy)
        change(copy)
        git(copy, "add", "-A")
        done = run_command(
            ["git", "diff", "--cached", "--binary", "HEAD"],
            timeout_s=30,
            cwd=copy,
            output_limit_bytes=64 << 20,
        )
        shutil.rmtree(copy)
        return done.output.decode("utf-8", "surrogateescape")

    return diff
