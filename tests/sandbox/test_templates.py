"""An image is extracted once a node, kept while it is used, and dropped when disk gets tight."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.records.failure import SandboxError
from pipeline.sandbox.templates import Templates

IMAGE = Path("image.sif")
NOTHING_FREE = 1 << 60
"""More than any disk has: every unused template has to go."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "templates"


def extract(_: Path, folder: Path) -> None:
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "file").write_text("x")
    (folder / "etc" / "file").chmod(0)
    (folder / "etc").chmod(0o500)


def templates(root: Path, make: Callable[[Path, Path], None] = extract, free: int = 0) -> Templates:
    return Templates(root, make, keep_free_bytes=free)


def kept(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.endswith(".lock"))


def test_many_at_once_share_one_extraction_that_we_may_write(root: Path) -> None:
    begun: list[Path] = []
    both_here = threading.Barrier(8, timeout=20)

    def slow(image: Path, folder: Path) -> None:
        begun.append(folder)
        extract(image, folder)

    def hold(_: int) -> tuple[Path, int]:
        both_here.wait()
        return templates(root, slow).hold(IMAGE, "sha256:1")

    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(hold, range(8)))
    assert len(begun) == 1
    assert {path for path, _ in held} == {root / "sha256-1"}
    (root / "sha256-1" / "etc" / "file").write_text("ours")
    for _, descriptor in held:
        os.close(descriptor)


def n_waiting(lock: Path) -> int:
    """Return how many wait for a lock, as the kernel counts them."""
    inode = f":{lock.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and inode in line for line in lines)


@pytest.mark.timeout(60)
def test_who_comes_while_others_use_it_waits_for_the_extraction_and_not_for_them(
    root: Path,
) -> None:
    extracting, others_wait = threading.Event(), threading.Event()

    def slow(image: Path, folder: Path) -> None:
        extracting.set()
        assert others_wait.wait(20)
        extract(image, folder)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(templates(root, slow).hold, IMAGE, "sha256:1")
        assert extracting.wait(20)
        late = [pool.submit(templates(root).hold, IMAGE, "sha256:1") for _ in range(7)]
        while n_waiting(root / ".sha256-1.making.lock") < 7:
            time.sleep(0.01)
        others_wait.set()
        # None of them lets go of it meanwhile.
        held = [call.result(timeout=20) for call in (first, *late)]
    for _, descriptor in held:
        os.close(descriptor)


def test_a_failed_extraction_leaves_nothing_and_is_done_again(root: Path) -> None:
    def fails(image: Path, folder: Path) -> None:
        extract(image, folder)
        raise SandboxError("no image")

    with pytest.raises(SandboxError, match="no image"):
        templates(root, fails).hold(IMAGE, "sha256:1")
    assert kept(root) == []
    folder, descriptor = templates(root).hold(IMAGE, "sha256:1")
    assert (folder / "etc" / "file").exists()
    os.close(descriptor)


def test_what_nobody_uses_is_dropped_when_the_disk_is_tight(root: Path) -> None:
    _, used = templates(root).hold(IMAGE, "sha256:used")
    os.close(templates(root).hold(IMAGE, "sha256:unused")[1])
    os.close(templates(root).hold(IMAGE, "sha256:roomy")[1])
    assert kept(root) == ["sha256-roomy", "sha256-unused", "sha256-used"]
    os.close(templates(root, free=NOTHING_FREE).hold(IMAGE, "sha256:new")[1])
    assert kept(root) == ["sha256-new", "sha256-used"]
    os.close(used)


KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.sandbox.templates import Templates
def extract(image, folder):
    folder.mkdir()
    print("begun", flush=True)
    sys.stdin.read(1)
Templates(Path(sys.argv[1]), extract, keep_free_bytes=0).hold(Path("image.sif"), "sha256:1")
"""


def test_an_extraction_whose_process_was_killed_is_removed_and_no_living_one(root: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        templates(root).sweep()
        assert len(kept(root)) == 1
        process.kill()
    templates(root).sweep()
    assert kept(root) == []
