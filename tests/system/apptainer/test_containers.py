"""Real containers keep every promise that temporary copies keep, and some of their own."""

import contextlib
import sys
from pathlib import Path

import pytest

from pipeline.records.failure import SandboxError
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.box import Box
from pipeline.sandbox.images import ImageRecord, ImageStore
from pipeline.sandbox.runtime import LAYOUTS
from tests.sandbox.promises import *  # noqa: F403 (the tests)
from tests.sandbox.promises import (
    LIMITS,
    ROW,
    kill_owner,
    leftovers,
    start_owner,
)
from tests.system.apptainer.toy_image import REFERENCE, reference_of, toy_image

pytestmark = pytest.mark.apptainer


OWNER = """
import sys
from pathlib import Path
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.images import ImageStore
store = ImageStore(Path(sys.argv[2]), lambda row: sys.argv[3])
factory = ApptainerSandboxes(Path(sys.argv[1]), store, keep_free_bytes=1 << 30)
sandbox = factory.start({"instance_id": "toy"}, purpose="rollout")
sandbox.execute("kill -KILL $PPID", timeout_s=20)  # the janitor has to know its successor
sandbox.execute(f"setsid sleep {sys.argv[4]} &", timeout_s=20)
print("started", flush=True)
sandbox.execute(f"sleep {sys.argv[4]}", timeout_s=3000)
"""


@pytest.fixture
def owner_argv(root: Path, images: ImageStore) -> list[str]:
    return [sys.executable, "-c", OWNER, str(root), str(images.folder), REFERENCE]


def test_conda_testbed_is_active_in_every_command(sandbox: Box) -> None:
    name = "echo $CONDA_DEFAULT_ENV"
    script = f"{name}; command -v python; bash -c 'conda activate other; {name}'"
    result = sandbox.execute(script, timeout_s=20)
    assert result.output == "testbed\n/opt/miniconda3/envs/testbed/bin/python\nother\n"


def test_what_a_command_adds_to_the_profile_reaches_later_commands(sandbox: Box) -> None:
    sandbox.execute("sleep 0.01; echo 'export ADDED=yes' >> ~/.bashrc", timeout_s=20)
    assert sandbox.execute("echo $ADDED", timeout_s=20).output == "yes\n"


def test_commands_are_root_of_a_file_system_they_may_write(sandbox: Box) -> None:
    script = "id -u; echo en >> /etc/locale.gen && rm -rf /usr/share && tail -1 /etc/locale.gen"
    assert sandbox.execute(script, timeout_s=20).output == "0\nen\n"


def test_nothing_is_written_to_the_users_home(
    root: Path, images: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    factory = ApptainerSandboxes(root, images, limits=LIMITS, keep_free_bytes=1 << 30)
    box = factory.start(ROW, purpose="rollout")
    box.execute("echo x > ~/file", timeout_s=20)
    box.stop()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_one_container_writes_no_other_sees(bare: ApptainerSandboxes) -> None:
    first = bare.start(ROW, purpose="rollout")
    first.execute("echo mine > /testbed/file; echo mine > /etc/file", timeout_s=20)
    second = bare.start(ROW, purpose="grade")
    assert second.execute("ls /testbed/file /etc/file", timeout_s=20).returncode != 0
    first.stop()
    second.stop()


def test_more_than_the_64_megabytes_of_a_tmpfs_can_be_written(sandbox: Box) -> None:
    folders = "/tmp /var/tmp /root /testbed /dev/shm"
    script = f"for f in {folders}; do head -c 90000000 /dev/zero > $f/file || exit; done"
    assert sandbox.execute(script, timeout_s=60).returncode == 0


def test_the_images_own_opt_is_seen_where_the_site_binds_its_own(
    work: Path, images: ImageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "site-opt").mkdir()
    for name in ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND"):
        monkeypatch.setenv(name, f"{work}/site-opt:/opt")
    monkeypatch.setenv("APPTAINERENV_LEAKED", "yes")
    factory = ApptainerSandboxes(root, images, limits=LIMITS, keep_free_bytes=1 << 30)
    box = factory.start(ROW, purpose="rollout")
    result = box.execute("ls /opt; echo .$LEAKED.", timeout_s=20)
    box.stop()
    assert result.output == "miniconda3\n..\n"


def test_nothing_of_the_machine_is_seen(sandbox: Box, work: Path) -> None:
    result = sandbox.execute(f"ls {work} {Path.home()}; env; cat /proc/mounts", timeout_s=20)
    assert result.output.count("No such file or directory") == 2
    assert "APPTAINER" not in result.output
    assert Path.home().name not in sandbox.execute("env; echo ~", timeout_s=20).output


def test_a_repository_of_another_user_works_with_git(rootfs: Path, work: Path, root: Path) -> None:
    images = toy_image(rootfs, work / "of-another", squashfs="-force-uid 4321 -force-gid 4321")
    factory = ApptainerSandboxes(root, images, limits=LIMITS, keep_free_bytes=1 << 30)
    box = factory.start(ROW, purpose="rollout")
    result = box.execute("git log --oneline | wc -l; git status --short", timeout_s=20)
    box.stop()
    assert result.output == "1\n"


CONNECT = """python - <<'EOF'
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=5)
print("loopback works")
try:
    socket.create_connection(("{host}", {port}), timeout=5)
    print("host reached")
except OSError:
    print("host not reached")
EOF"""


def test_the_network_is_on_or_off_by_purpose(images: ImageStore, root: Path) -> None:
    import socket

    factory = ApptainerSandboxes(
        root,
        images,
        limits=LIMITS,
        network={"rollout": False, "grade": True},
        keep_free_bytes=1 << 30,
    )
    outputs = {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        script = CONNECT.replace("{host}", host).replace("{port}", str(port))
        for purpose in ("rollout", "grade"):
            box = factory.start(ROW, purpose=purpose)
            outputs[purpose] = box.execute(script, timeout_s=30).output
            box.stop()
    assert outputs["rollout"] == "loopback works\nhost not reached\n"
    assert outputs["grade"] == "loopback works\nhost reached\n"


@pytest.mark.parametrize("layout", [layout.name for layout in LAYOUTS])
def test_every_layout_runs_writes_and_leaves_nothing(
    layout: str, images: ImageStore, root: Path
) -> None:
    factory = ApptainerSandboxes(
        root, images, limits=LIMITS, layout=layout, keep_free_bytes=1 << 30
    )
    box = factory.start(ROW, purpose="grade")
    script = "echo a > /etc/new && rm -r /usr/share && mv /opt /other && mkdir -p /testbed/b && "
    script += "cat /etc/new && git -C /testbed status -s"
    result = box.execute(script, timeout_s=60)
    assert (result.output, result.returncode) == ("a\n", 0)
    assert box.execute("sleep 600", timeout_s=0.5).timed_out
    box.stop()
    assert leftovers(root) == []


def test_a_file_that_a_command_gave_away_is_removed_all_the_same(
    factory: ApptainerSandboxes, root: Path
) -> None:
    box = factory.start(ROW, purpose="rollout")
    box.execute("mkdir -p /etc/d/e; chown -R 5:5 /etc/d /testbed; chmod 0 /etc/d", timeout_s=20)
    box.stop()
    assert leftovers(root) == []


def mounts_below(root: Path) -> list[str]:
    """Return the mounts at or over anything below `root`, in whatever namespace it is visible."""
    found = []
    for table in Path("/proc").glob("[0-9]*/mounts"):
        with contextlib.suppress(OSError):
            found += [line for line in table.read_text().splitlines() if str(root) in line]
    return found


def test_no_mount_of_a_sandbox_is_left_on_the_machine(
    factory: ApptainerSandboxes, root: Path
) -> None:
    box = factory.start(ROW, purpose="rollout")
    assert mounts_below(root)
    box.stop()
    assert mounts_below(root) == []


def test_no_mount_is_left_by_an_owner_that_was_killed(
    factory: ApptainerSandboxes, root: Path, owner_argv: list[str]
) -> None:
    kill_owner(start_owner([*owner_argv, "90002"]))
    assert factory.janitor() == 1
    assert mounts_below(root) == []


def test_what_is_wrong_with_the_profile_does_not_stop_transfers(sandbox: Box) -> None:
    sandbox.execute("sleep 0.01; echo 'cat() { :; }; exit 3' >> ~/.bashrc", timeout_s=20)
    assert sandbox.execute("echo never", timeout_s=20).returncode == 3
    sandbox.upload(b"content", "file")
    assert sandbox.download("file", limit_bytes=99) == b"content"


def test_a_command_that_kills_everyone_costs_only_itself(sandbox: Box) -> None:
    script = "echo kept > file; [ -d /.sandbox ] && kill -KILL -1"
    assert sandbox.execute(script, timeout_s=20).returncode == 137
    assert sandbox.execute("cat file", timeout_s=20).output == "kept\n"


def test_a_command_that_removes_the_image_costs_only_the_commands_after_it(
    sandbox: Box, factory: ApptainerSandboxes
) -> None:
    sandbox.execute("[ -d /.sandbox ] && rm -rf /bin /lib* /opt /sbin /usr", timeout_s=60)
    assert sandbox.execute("true", timeout_s=20).returncode == 127
    other = factory.start(ROW, purpose="rollout")
    assert other.execute("python -c 'print(1)'", timeout_s=20).output == "1\n"
    other.stop()


def test_an_image_that_is_broken_says_so(tmp_path: Path, root: Path) -> None:
    (tmp_path / "broken.sif").write_bytes(b"no image")
    store = ImageStore(tmp_path, reference_of)
    store.write_record(
        ImageRecord(
            reference=REFERENCE,
            file="broken.sif",
            sif_sha256="0" * 64,
            sif_bytes=8,
            source="nowhere",
            manifest_digest=None,
        )
    )
    factory = ApptainerSandboxes(root, store, keep_free_bytes=1 << 30)
    with pytest.raises(SandboxError, match="cannot extract"):
        factory.start(ROW, purpose="rollout")
    assert list((root / "templates").glob("*.new")) == []
