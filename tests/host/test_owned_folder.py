"""What killed processes left in a common place is cleared away by the next one, and only that."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.host.owned_folder import owned_folder
from pipeline.host.process import process_identity
from pipeline.serving.server import CACHE_PREFIX
from pipeline.worker.servers import SIM_PREFIX


@pytest.mark.parametrize("prefix", [CACHE_PREFIX, SIM_PREFIX])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, prefix: str) -> None:
    program = (
        "import sys, time; from pathlib import Path; "
        "from pipeline.host.owned_folder import owned_folder; "
        "print(owned_folder(sys.argv[1], Path(sys.argv[2])), flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", program, prefix, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        (left / "inside").mkdir()
        mine = owned_folder(prefix, tmp_path)
        assert {*tmp_path.iterdir()} == {left, mine}, "its owner lives"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        again = owned_folder(prefix, tmp_path)
    assert {*tmp_path.iterdir()} == {mine, again}


def test_an_id_that_is_used_again_protects_nothing_and_other_names_stay(tmp_path: Path) -> None:
    identity = process_identity(os.getpid())
    assert identity is not None
    (tmp_path / f"p-{identity.pid}-{identity.start_ticks - 1}-x").mkdir()
    (tmp_path / "p-notes").mkdir()
    mine = owned_folder("p-", tmp_path)
    assert {*tmp_path.iterdir()} == {mine, tmp_path / "p-notes"}
