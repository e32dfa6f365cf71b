"""What a run changed, by a real git in a real sandbox."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.agent.printed_patch import PrintedPatch
from pipeline.agent.run_diff import first_commit, run_diff
from pipeline.protocols import Sandbox
from pipeline.records.patch import patch_bytes
from pipeline.sandbox.local import LocalSandboxes

GIT = "git -c user.name=x -c user.email=x@x"


def materialise(_row: Mapping[str, Any], folder: Path) -> None:
    shell(folder, "git init -q; echo a > kept; echo b > old; mkdir d; echo '*.log' > .gitignore")
    shell(folder, f"git add -A; {GIT} commit -qm start")


def shell(folder: Path, line: str) -> bytes:
    return subprocess.run(["bash", "-ec", line], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = LocalSandboxes(tmp_path / "root", materialise).start({}, purpose="rollout")
    yield box
    box.stop()


def diff_after(sandbox: Sandbox, work: str) -> PrintedPatch:
    """Return the diff of a run whose agent did `work`."""
    commit = first_commit(sandbox, timeout_s=20)
    done = sandbox.execute(f"set -e; {work}", timeout_s=60)
    assert done.returncode == 0, done.output
    return run_diff(sandbox, commit, timeout_s=60)


def files_with(diff: PrintedPatch, folder: Path) -> dict[str, bytes]:
    """Return the files of a fresh copy after the diff was applied to it."""
    folder.mkdir()
    materialise({}, folder)
    (folder.parent / "p").write_bytes(patch_bytes(diff.patch))
    shell(folder, "git apply --verbose ../p")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def test_committed_work_new_removed_and_binary_files_are_in_the_diff_against_the_first_commit(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    work = (
        f"echo more >> kept; {GIT} commit -qam work; echo new > d/new; git rm -q old; "
        "echo staged > s; git add s; printf '\\0\\1' > binary; echo x > ignored.log"
    )
    assert files_with(diff_after(sandbox, f"mkdir -p d; {work}"), tmp_path / "fresh") == {
        ".gitignore": b"*.log\n",
        "kept": b"a\nmore\n",
        "d/new": b"new\n",
        "s": b"staged\n",
        "binary": b"\0\1",
    }


def test_the_repository_stays_as_the_agent_left_it(sandbox: Sandbox) -> None:
    look = "git status --porcelain; git rev-parse HEAD; cat .git/index | sha256sum"
    sandbox.execute("echo b >> kept; echo new > new; git add new", timeout_s=20)
    before = sandbox.execute(look, timeout_s=20).output
    assert diff_after(sandbox, "true").patch
    assert sandbox.execute(look, timeout_s=20).output == before


def test_what_the_agent_configured_and_what_git_remarks_do_not_reach_the_diff(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    work = (
        "git config diff.noprefix true; git config diff.mnemonicPrefix true; "
        "git config color.ui always; git config diff.external /bin/false; "
        "git config core.autocrlf true; echo b >> kept"
    )
    diff = diff_after(sandbox, work)
    assert diff.patch.startswith("diff --git a/kept b/kept")
    assert files_with(diff, tmp_path / "fresh")["kept"] == b"a\nb\n"


def test_names_and_lines_in_another_encoding_are_in_the_diff_byte_for_byte(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    work = r"git config core.quotepath false; printf 'caf\351\n' > $'caf\351.txt'"
    diff = diff_after(sandbox, work)
    assert b"+caf\xe9" in patch_bytes(diff.patch)
    files = files_with(diff, tmp_path / "fresh")
    assert files["caf\udce9.txt"] == b"caf\xe9\n"


def test_a_diff_of_twelve_megabytes_is_kept_whole_and_one_of_forty_has_a_size(
    sandbox: Sandbox,
) -> None:
    line = "x" * 99
    diff = diff_after(sandbox, f"yes {line} | head -n 120000 > big")
    assert diff.patch.count(line) == 120_000
    diff = diff_after(sandbox, f"yes {line} | head -n 400000 > big")
    assert diff.patch == ""
    assert diff.oversize_bytes is not None
    assert 40_400_000 < diff.oversize_bytes < 40_401_000


def test_nothing_changed_or_no_repository_is_no_diff(sandbox: Sandbox) -> None:
    assert diff_after(sandbox, "true") == PrintedPatch()
    assert diff_after(sandbox, "rm -rf .git") == PrintedPatch()
    assert diff_after(sandbox, "true") == PrintedPatch()
