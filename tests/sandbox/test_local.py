"""What a sandbox promises, on temporary copies: confined by bubblewrap and not.

The same promises are checked on real containers in tests/system/apptainer/test_containers.py.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.host.process import ProcessIdentity, is_alive, process_identity
from pipeline.records.failure import DiskError
from pipeline.sandbox.box import Box
from pipeline.sandbox.local import LocalSandboxes, bubblewrap_works
from tests.sandbox.promises import *  # noqa: F403 (the tests)
from tests.sandbox.promises import LIMITS, ROW, materialise

NO_BUBBLEWRAP = "bubblewrap does not work here; `apt install bubblewrap` brings it"


@pytest.fixture(params=["confined", "plain"])
def confine(request: pytest.FixtureRequest) -> bool:
    if request.param == "confined" and not bubblewrap_works():
        pytest.skip(NO_BUBBLEWRAP)
    return request.param == "confined"


@pytest.fixture
def factory(root: Path, confine: bool) -> LocalSandboxes:
    return LocalSandboxes(root, materialise, limits=LIMITS, confine=confine)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def owner_argv(root: Path, confine: bool) -> list[str]:
    return [sys.executable, "-c", OWNER, str(root), str(confine)]


@pytest.fixture
def sandbox(factory: LocalSandboxes) -> Iterator[Box]:
    box = factory.start(ROW, purpose="rollout")
    yield box
    box.stop()


@pytest.fixture
def confined(root: Path) -> Iterator[Box]:
    if not bubblewrap_works():
        pytest.skip(NO_BUBBLEWRAP)
    box = LocalSandboxes(root, materialise, limits=LIMITS, confine=True).start(
        ROW, purpose="rollout"
    )
    yield box
    box.stop()


def test_a_confined_command_sees_nothing_of_the_machine(confined: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    result = confined.execute(
        f"cat {tmp_path}/secret; touch /usr/x /etc/x; kill -0 {os.getpid()}; ls /root", timeout_s=20
    )
    assert "secret\n" not in result.output.replace("/secret", "")
    assert result.output.count("Read-only file system") == 2
    assert "No such process" in result.output


def test_a_confined_command_is_root_of_its_own_files_whoever_runs_it(confined: Box) -> None:
    result = confined.execute("id -u; stat -c %U:%G module.py", timeout_s=20)
    assert result.output == "0\nroot:root\n"


def test_nothing_that_a_confined_command_writes_stays_in_memory(confined: Box) -> None:
    folders = "/tmp ~ /testbed /dev/shm"
    result = confined.execute(
        f"df --output=fstype {folders} | grep -c tmpfs; touch /x /dev/x", timeout_s=20
    )
    assert result.output.startswith("0\n")
    assert result.output.count("Read-only file system") == 2


def test_a_failed_copy_leaves_nothing(tmp_path: Path) -> None:
    def full(_: Mapping[str, Any], folder: Path) -> None:
        (folder / "part").write_text("x")
        with open("/dev/full", "w") as file:  # noqa: PTH123
            file.write("x")

    factory = LocalSandboxes(tmp_path / "root", full, confine=False)
    with pytest.raises(DiskError):
        factory.start(ROW, purpose="rollout")
    assert list((tmp_path / "root").iterdir()) == []


OWNER = """
import sys
from pathlib import Path
from pipeline.sandbox.local import LocalSandboxes
factory = LocalSandboxes(Path(sys.argv[1]), lambda row, folder: None, confine=sys.argv[2] == "True")
sandbox = factory.start({}, purpose="rollout")
sandbox.execute("kill -KILL $PPID", timeout_s=20)  # the janitor has to know its successor
sandbox.execute(f"setsid sleep {sys.argv[3]} &", timeout_s=20)
print("started", flush=True)
sandbox.execute(f"sleep {sys.argv[3]}", timeout_s=3000)
"""


def test_the_janitor_does_not_touch_a_process_that_took_over_a_number(tmp_path: Path) -> None:
    me = process_identity(os.getpid())
    assert me is not None
    folder = tmp_path / f"sandbox-{me.pid}-{me.start_ticks + 1}-0123abcd"
    folder.mkdir()
    sleeper = subprocess.Popen(["sleep", "600"])
    (folder / "shell").write_text(f"{sleeper.pid} 1\n")
    assert LocalSandboxes(tmp_path, materialise, confine=False).janitor() == 1
    identity = process_identity(sleeper.pid)
    assert isinstance(identity, ProcessIdentity)
    assert is_alive(identity)
    sleeper.kill()
    sleeper.wait()
