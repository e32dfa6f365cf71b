"""What containers promise holds for ordinary users: root runs the tests in `apptainer/` as one.

That is user `planprune-test`, made if absent. Who is not root needs none of this, and has no test
here: pytest then collects that folder by itself.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.host.environment import environment
from pipeline.host.files import remove_tree
from pipeline.host.process import run_command
from tests.system.apptainer.toy_image import PROJECT, REMEDY

USER = "planprune-test"
FOLDER = Path(__file__).with_name("apptainer").relative_to(PROJECT)

if os.geteuid() == 0:

    @pytest.mark.apptainer
    @pytest.mark.timeout(1500)
    def test_an_ordinary_user_passes_every_test_of_containers(
        require: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        require("apptainer", shutil.which("apptainer"), remedy=REMEDY)
        user = ordinary_user()
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={user.pw_gid}", "--init-groups"]
        with folder_of(user) as folder, readable_project(as_user, folder) as project:
            done = run_command(
                [*as_user, *pytest_argv(as_user, project, folder)],
                timeout_s=1400,
                env=environment_of(user, project),
                cwd=folder,
            )
        assert done.returncode == 0, done.text[-20_000:]
        summary = done.text.splitlines()[-1]
        with capsys.disabled():
            sys.stdout.write(f"\nas {USER}: {summary}\n")
        must_be_here = "apptainer" in environment().get("REQUIRE", "")
        assert not must_be_here or "skipped" not in summary, done.text[-4000:]


def ordinary_user() -> pwd.struct_passwd:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(USER)
    subprocess.run(["useradd", "--create-home", USER], check=True)
    return pwd.getpwnam(USER)


@contextlib.contextmanager
def folder_of(user: pwd.struct_passwd) -> Iterator[Path]:
    """Give a folder of the user's, which goes at the end; only root may enter pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="planprune-test-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    yield folder
    remove_tree(folder)


@contextlib.contextmanager
def readable_project(as_user: list[str], folder: Path) -> Iterator[Path]:
    """Give the checkout, under another path if it lies where only root may enter."""
    if run_command([*as_user, "test", "-r", str(PROJECT / "README.md")], timeout_s=20).returncode:
        project = folder / "project"
        project.mkdir()
        subprocess.run(["mount", "--bind", str(PROJECT), str(project)], check=True)
        try:
            yield project
        finally:
            subprocess.run(["umount", "-l", str(project)], check=True)
    else:
        yield PROJECT


def pytest_argv(as_user: list[str], project: Path, folder: Path) -> list[str]:
    # The interpreter may lie where only root can read: then the system's runs our packages.
    python = sys.executable
    if run_command([*as_user, "test", "-x", python], timeout_s=20).returncode:
        python = f"/usr/bin/python3.{sys.version_info.minor}"
    return [
        *(python, "-m", "pytest", str(project / FOLDER), "-q", "-p", "no:cacheprovider"),
        *(f"--basetemp={folder}/t", f"--rootdir={project}", "-c", str(project / "pyproject.toml")),
    ]


def environment_of(user: pwd.struct_passwd, project: Path) -> dict[str, str]:
    packages = [
        entry.replace(str(PROJECT), str(project))
        for entry in sys.path
        if entry.endswith("site-packages")
    ]
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": user.pw_dir,
        "PYTHONPATH": ":".join([str(project), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "REQUIRE": environment().get("REQUIRE", ""),
    }
