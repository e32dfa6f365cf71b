"""A child ends with all it started, in bounded time and bounded memory."""

import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from pipeline.host.environment import environment
from pipeline.host.process import (
    ProcessIdentity,
    descendants,
    is_alive,
    process_identity,
    run_command,
    start_group,
)
from pipeline.host.slurm_environment import scrubbed_slurm


def wait_for(path: Path) -> str:
    for _ in range(500):
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text().strip()
        time.sleep(0.01)
    raise AssertionError(f"{path} was never written")


def test_children_hear_interrupts_that_our_starter_ignored() -> None:
    child = "import signal as s; print(s.SIG_IGN in map(s.getsignal, [s.SIGINT, s.SIGQUIT]))"
    ours = (
        "import sys; from pipeline.host.process import hear_interrupts, run_command; "
        "before = run_command([sys.executable, '-c', sys.argv[1]], timeout_s=30).text; "
        "hear_interrupts(); "
        "print(before, run_command([sys.executable, '-c', sys.argv[1]], timeout_s=30).text)"
    )
    background = 'trap "" INT QUIT; exec "$0" -c "$1" "$2"'
    done = run_command(["bash", "-c", background, sys.executable, ours, child], timeout_s=60)
    assert done.text.split() == ["True", "False"]


def is_gone(pid: int) -> bool:
    """The pid is gone, or a zombie that its new parent has yet to reap."""
    for _ in range(200):
        identity = process_identity(pid)
        if identity is None or not is_alive(identity):
            return True
        time.sleep(0.01)
    return False


def test_output_and_errors_come_as_one_ordered_stream() -> None:
    done = run_command(["bash", "-c", "echo a; echo b >&2; echo c; exit 3"], timeout_s=20)
    assert (done.text, done.returncode, done.timed_out) == ("a\nb\nc\n", 3, False)


def test_input_larger_than_a_pipe_reaches_the_command() -> None:
    data = bytes(range(256)) * 4096
    done = run_command(["cat"], timeout_s=20, input=data)
    assert done.output == data


def test_a_command_that_does_not_read_its_input_still_ends() -> None:
    assert run_command(["true"], timeout_s=20, input=b"x" * 1_000_000).returncode == 0


def test_a_missing_program_is_an_oserror() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(["no-such-program-here"], timeout_s=5)


def test_the_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/pid; trap '' TERM; echo before; sleep 300; sleep 9"
    done = run_command(["bash", "-c", script], timeout_s=0.5, grace_s=0.2)
    assert done.timed_out
    assert done.text == "before\n"
    assert done.returncode == -signal.SIGKILL
    assert is_gone(int(wait_for(tmp_path / "pid")))


def test_a_command_that_obeys_sigterm_says_its_last_words() -> None:
    script = "trap 'echo bye; exit 4' TERM; sleep 300 & wait"
    done = run_command(["bash", "-c", script], timeout_s=0.3, grace_s=5)
    assert (done.timed_out, done.text, done.returncode) == (True, "bye\n", 4)


def test_a_background_child_does_not_delay_the_return_nor_outlive_it(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/pid; echo done"
    done = run_command(["bash", "-c", script], timeout_s=60)
    assert (done.text, done.timed_out) == ("done\n", False)
    assert is_gone(int(wait_for(tmp_path / "pid")))


def test_a_command_that_closes_its_output_is_waited_for() -> None:
    done = run_command(["bash", "-c", "exec >&- 2>&-; sleep 0.2; exit 7"], timeout_s=20)
    assert done.returncode == 7


def test_long_output_keeps_both_ends_and_counts_the_rest() -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "echo first; head -c 200000000 /dev/zero; echo last"
    done = run_command(["bash", "-c", script], timeout_s=60, output_limit_bytes=1000)
    assert done.output.startswith(b"first\n")
    assert done.output.endswith(b"last\n")
    assert len(done.output) == 1000
    assert done.dropped_bytes == 200_000_011 - 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000


def test_an_environment_replaces_ours(tmp_path: Path) -> None:
    done = run_command(["/usr/bin/env"], timeout_s=20, env={"ONLY": "this"}, cwd=tmp_path)
    assert done.text == "ONLY=this\n"


def test_stopping_a_group_takes_a_descendant_that_left_the_session(tmp_path: Path) -> None:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/pid; trap '' TERM; while :; do sleep 1; done"
    child = start_group(["bash", "-c", script], log=tmp_path / "log")
    pid = int(wait_for(tmp_path / "pid"))
    assert child.alive()
    assert pid in descendants(child.pid)
    assert child.stop(grace_s=0.1)
    assert is_gone(pid)
    assert not child.alive()
    assert child.stop(grace_s=0)


def test_stopping_waits_for_a_member_that_outlives_the_leader(tmp_path: Path) -> None:
    script = f"(trap '' TERM; echo x > {tmp_path}/ready; while :; do sleep 0.05; done) & wait"
    child = start_group(["bash", "-c", script])
    wait_for(tmp_path / "ready")
    assert child.stop(grace_s=0.2)
    assert child.members() == []


def test_a_group_writes_to_its_log_and_reports_its_status(tmp_path: Path) -> None:
    child = start_group(["bash", "-c", "echo out; echo err >&2; exit 5"], log=tmp_path / "log")
    assert child.wait(timeout_s=20) == 5
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    child.stop(grace_s=0)


def test_a_group_talks_over_pipes() -> None:
    child = start_group(["cat"], pipe_stdin=True, pipe_stdout=True)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"hello\n")
    assert child.stdout.readline() == b"hello\n"
    child.stop(grace_s=1)


def test_identity_tells_a_process_from_a_later_one_with_its_id() -> None:
    identity = process_identity(os.getpid())
    assert identity is not None
    assert is_alive(identity)
    assert not is_alive(ProcessIdentity(identity.pid, identity.start_ticks + 1))


def test_a_zombie_is_not_alive() -> None:
    child = start_group([sys.executable, "-c", "pass"])
    assert child.identity is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.identity)
    child.stop(grace_s=0)


def test_slurms_variables_are_scrubbed_except_where_the_cluster_is() -> None:
    inherited = {"SLURM_JOB_ID": "1", "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    kept = {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    assert scrubbed_slurm(inherited) == kept
    options = {
        "SBATCH_PARTITION": "x",
        "SRUN_DEBUG": "1",
        "SQUEUE_STATES": "R",
        "SLURMISH": "",
        "SBATCH_LOG": "mine",
    }
    assert scrubbed_slurm({**kept, **options}) == {**kept, "SLURMISH": "", "SBATCH_LOG": "mine"}
    assert scrubbed_slurm(options, keep=["SBATCH_PARTITION"])["SBATCH_PARTITION"] == "x"


def test_the_environment_is_a_copy() -> None:
    copy = environment()
    copy["PLANPRUNE_TEST_ONLY"] = "1"
    assert "PLANPRUNE_TEST_ONLY" not in os.environ


def test_slurms_warning_reaches_no_child() -> None:
    child = start_group(["sleep", "60"])
    handled = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        child.popen.send_signal(signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)  # ours still comes, and is handled
        assert child.wait(0.2) is None
    finally:
        signal.signal(signal.SIGUSR2, handled)
        child.stop(grace_s=0)
