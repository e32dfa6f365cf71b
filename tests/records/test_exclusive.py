import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.records.exclusive import ClaimHeldError, ClaimLostError, exclusive_claim


class Clock:
    """A clock that jumps ten seconds a look."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        self.time_s += 10.0
        return self.time_s


def test_a_claim_is_gone_after_use(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "c"
    with exclusive_claim(path) as claim:
        claim.beat()
        claim.check()
        assert path.exists()
    assert list(path.parent.iterdir()) == []


def test_a_live_holder_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with (
        exclusive_claim(path),
        pytest.raises(ClaimHeldError, match="held by another"),
        exclusive_claim(path, wait_s=50, stale_s=1e9, poll_s=0, now_s=Clock()),
    ):
        pass


def test_a_holder_whose_counter_stands_still_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with exclusive_claim(path) as dead:
        with exclusive_claim(path, wait_s=1e9, stale_s=60, poll_s=0, now_s=Clock()) as claim:
            claim.check()
            with pytest.raises(ClaimLostError, match="run the command again"):
                dead.check()
            dead.beat()  # reaches its own file, not the successor's
            claim.check()
        assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_was_killed_on_this_machine_is_taken_over_at_once(tmp_path: Path) -> None:
    script = (
        "import sys, os, signal; from pathlib import Path; "
        "from pipeline.records.exclusive import exclusive_claim\n"
        "with exclusive_claim(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "c"
    killed = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert path.exists()
    with exclusive_claim(path, wait_s=5, stale_s=1e9) as claim:
        claim.check()


def test_a_claim_that_was_lost_is_not_removed_by_its_old_holder(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with exclusive_claim(path):
        path.unlink()
        path.write_bytes(b"someone else's")
    assert path.read_bytes() == b"someone else's"
