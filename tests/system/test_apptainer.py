"""Real containers keep every promise that temporary copies keep, and some of their own.

Needs Apptainer and an ordinary user. Root gets the latter by running this file again as user
`planprune-test`, which is made if absent; the tests themselves are then skipped in root's run.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SANDBOX_TESTS = Path(__file__).parents[1] / "sandbox"
sys.path.insert(0, str(SANDBOX_TESTS))
if "promises" not in sys.modules:  # the local sandboxes' tests may have come first
    pytest.register_assert_rewrite("promises")

from promises import *  # noqa: E402, F403 (the tests)
from promises import LIMITS, ROW, leftovers, materialise  # noqa: E402

from pipeline.host.environment import environment  # noqa: E402
from pipeline.host.files import remove_tree  # noqa: E402
from pipeline.host.process import run_command  # noqa: E402
from pipeline.records.failure import SandboxError  # noqa: E402
from pipeline.sandbox.apptainer import ApptainerSandboxes  # noqa: E402
from pipeline.sandbox.box import Box  # noqa: E402
from pipeline.sandbox.images import ImageRecord, ImageStore  # noqa: E402
from pipeline.sandbox.runtime import LAYOUTS  # noqa: E402
from pipeline.sandbox.staging import sha256_of  # noqa: E402

PROJECT = Path(__file__).parents[2]
USER = "planprune-test"
REFERENCE = "docker.io/planprune/toy.test:latest"
REMEDY = "`tests/system/install_apptainer.sh WORK_FOLDER` brings it on Debian 12 (root)"
IS_ROOT = os.geteuid() == 0

pytestmark = pytest.mark.apptainer


def reference_of(_: object) -> str:
    return REFERENCE


@pytest.fixture(autouse=True)
def needs_apptainer(request: pytest.FixtureRequest, require: Callable[..., None]) -> None:
    require("apptainer", shutil.which("apptainer"), remedy=REMEDY)
    if IS_ROOT and request.node.name != "test_an_ordinary_user_passes_all_of_this":
        pytest.skip("an ordinary user runs it, in test_an_ordinary_user_passes_all_of_this")


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a short-named folder on a real disk: images and sandboxes go there."""
    return tmp_path_factory.mktemp("apptainer")


@pytest.fixture(scope="session")
def images(work: Path) -> ImageStore:
    """Return a store with the toy image in it, built without a network."""
    rootfs, folder = work / "rootfs", work / "images"
    folder.mkdir()
    script = PROJECT / "containers" / "toy_rootfs.sh"
    made = run_command(["bash", str(script), str(rootfs)], timeout_s=300)
    assert made.returncode == 0, made.text
    sif = folder / "toy.sif"
    build = [
        "apptainer",
        "build",
        "--mksquashfs-args",
        "-Xcompression-level 1",
        str(sif),
        str(rootfs),
    ]
    built = run_command(build, timeout_s=600)
    assert built.returncode == 0, built.text
    store = ImageStore(folder, reference_of)
    store.write_record(
        ImageRecord(
            reference=REFERENCE,
            file=sif.name,
            sif_sha256=sha256_of(sif),
            sif_bytes=sif.stat().st_size,
            source=str(rootfs),
            manifest_digest=None,
        )
    )
    return store


@pytest.fixture(scope="session")
def root(work: Path) -> Path:
    return work / "boxes"


@pytest.fixture
def factory(root: Path, images: ImageStore) -> ApptainerSandboxes:
    return ApptainerSandboxes(
        root, images, checkout=materialise, limits=LIMITS, keep_free_bytes=1 << 30
    )


@pytest.fixture
def bare(root: Path, images: ImageStore) -> ApptainerSandboxes:
    """Return a factory whose containers have the image's own /testbed."""
    return ApptainerSandboxes(root, images, limits=LIMITS, keep_free_bytes=1 << 30)


@pytest.fixture
def sandbox(factory: ApptainerSandboxes) -> Iterator[Box]:
    box = factory.start(ROW, purpose="rollout")
    yield box
    box.stop()


OWNER = """
import sys
from pathlib import Path
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.images import ImageStore
store = ImageStore(Path(sys.argv[2]), lambda row: sys.argv[3])
factory = ApptainerSandboxes(Path(sys.argv[1]), store, keep_free_bytes=1 << 30)
sandbox = factory.start({"instance_id": "toy"}, purpose="rollout")
sandbox.execute(f"setsid sleep {sys.argv[4]} &", timeout_s=20)
print("started", flush=True)
sandbox.execute(f"sleep {sys.argv[4]}", timeout_s=3000)
"""


@pytest.fixture
def owner_argv(root: Path, images: ImageStore) -> list[str]:
    return [sys.executable, "-c", OWNER, str(root), str(images.folder), REFERENCE]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")
def test_an_ordinary_user_passes_all_of_this() -> None:
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--create-home", USER], check=True)
        user = pwd.getpwnam(USER)
    # The interpreter may lie where only root can read: then the system's runs our packages.
    python = sys.executable
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={user.pw_gid}", "--init-groups"]
    if run_command([*as_user, "test", "-x", python], timeout_s=20).returncode:
        python = f"/usr/bin/python3.{sys.version_info.minor}"
    # Not below pytest's own folder, which only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="planprune-test-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    # A checkout in a folder that only root may enter is shown to the user under another path.
    project = PROJECT
    if run_command(
        [*as_user, "test", "-r", str(PROJECT / "pyproject.toml")], timeout_s=20
    ).returncode:
        project = folder / "project"
        project.mkdir()
        subprocess.run(["mount", "--bind", str(PROJECT), str(project)], check=True)
    packages = [
        entry.replace(str(PROJECT), str(project))
        for entry in sys.path
        if entry.endswith("site-packages")
    ]
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": user.pw_dir,
        "PYTHONPATH": ":".join([str(project), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "REQUIRE": environment().get("REQUIRE", ""),
    }
    here = project / Path(__file__).relative_to(PROJECT)
    argv = [*as_user, python, "-m", "pytest", str(here), "-q", "-p", "no:cacheprovider"]
    argv += [
        f"--basetemp={folder}/t",
        f"--rootdir={project}",
        "-c",
        str(project / "pyproject.toml"),
    ]
    done = run_command(argv, timeout_s=840, env=env, cwd=folder)
    if project != PROJECT:
        subprocess.run(["umount", "-l", str(project)], check=True)
    remove_tree(folder)
    assert done.returncode == 0, done.text[-8000:]
    assert " passed" in done.text


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


def test_what_one_container_writes_no_other_sees(bare: ApptainerSandboxes) -> None:
    first = bare.start(ROW, purpose="rollout")
    first.execute("echo mine > /testbed/file; echo mine > /etc/file", timeout_s=20)
    second = bare.start(ROW, purpose="grade")
    assert second.execute("ls /testbed/file /etc/file", timeout_s=20).returncode != 0
    first.stop()
    second.stop()


def test_more_than_the_64_megabytes_of_a_tmpfs_can_be_written(sandbox: Box) -> None:
    folders = "/tmp /var/tmp /root /testbed"
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


def test_a_repository_of_another_user_works_with_git(bare: ApptainerSandboxes) -> None:
    box = bare.start(ROW, purpose="rollout")
    result = box.execute("git -C /testbed log --oneline | wc -l", timeout_s=20)
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


def test_no_mount_of_a_sandbox_is_left_on_the_machine(
    factory: ApptainerSandboxes, root: Path
) -> None:
    box = factory.start(ROW, purpose="rollout")
    box.stop()
    assert str(root) not in Path("/proc/mounts").read_text()


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


def test_an_unused_extracted_image_makes_room_for_others(
    images: ImageStore, tmp_path: Path
) -> None:
    factory = ApptainerSandboxes(tmp_path / "boxes", images, keep_free_bytes=1 << 60)
    templates = tmp_path / "boxes" / "templates"
    box = factory.start(ROW, purpose="rollout")
    (templates / "sha256-unused").mkdir()
    (used,) = (path.name for path in templates.glob("sha256-*") if "unused" not in path.name)
    record = images.record_for(ROW)
    other = ImageStore(images.folder, lambda _: "docker.io/planprune/toy.other:latest")
    other.write_record(
        ImageRecord(
            reference="docker.io/planprune/toy.other:latest",
            file=record.file,
            sif_sha256="1" * 64,
            sif_bytes=record.sif_bytes,
            source="the same",
            manifest_digest=None,
        )
    )
    second = ApptainerSandboxes(tmp_path / "boxes", other, keep_free_bytes=1 << 60)
    second.start(ROW, purpose="rollout").stop()
    assert {path.name for path in templates.glob("sha256-*")} == {used, f"sha256-{'1' * 64}"}
    box.stop()
