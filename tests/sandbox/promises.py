"""What every kind of sandbox promises, as tests for whoever defines the fixtures.

A test file imports all of it and defines `factory` (limits as in `LIMITS`), `sandbox` (one started
by it), `root` (its folder) and `owner_argv` (a command that starts a sandbox which sleeps as many
seconds as its last argument says, in the background and in the foreground).
"""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.host.proctable import all_processes
from pipeline.protocols import Sandbox, SandboxFactory
from pipeline.records.failure import PathError, SandboxError
from pipeline.sandbox.limits import Limits

LIMITS = Limits(output_bytes=20_000, processes=100, memory_bytes=400 << 20)

ROW = {"instance_id": "toy__one-1"}


def materialise(row: Mapping[str, Any], folder: Path) -> None:
    (folder / "module.py").write_text(f"print({row['instance_id']!r})\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


def processes_with(text: bytes) -> list[int]:
    """Return who lives with `text` in its command line, anywhere on this machine."""
    found = []
    for stat in all_processes():
        try:
            line = Path(f"/proc/{stat.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if text in line and stat.state not in "ZX":
            found.append(stat.pid)
    return found


def soon(condition: Any) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


def leftovers(root: Path) -> list[str]:
    """Return the sandboxes' folders below `root`."""
    return [path.name for path in root.glob("sandbox-*")]


def sleep_seconds(sandbox: object) -> str:
    """Return an odd number of seconds, to find this test's sleeping processes by."""
    return f"{90_000 + id(sandbox) % 9_999}.{os.getpid()}"


def test_a_command_runs_in_a_fresh_copy(factory: SandboxFactory, sandbox: Sandbox) -> None:
    result = sandbox.execute("pwd; python module.py; rm module.py", timeout_s=20)
    assert (result.output, result.returncode) == ("/testbed\ntoy__one-1\n", 0)
    other = factory.start(ROW, purpose="grade")
    assert other.execute("cat module.py", timeout_s=20).returncode == 0
    other.stop()


def test_a_failed_command_is_a_result(sandbox: Sandbox) -> None:
    result = sandbox.execute("echo out; no-such-thing; exit 7", timeout_s=20)
    assert result.output == "out\nbash: line 1: no-such-thing: command not found\n"
    assert result.returncode == 7


def test_output_and_errors_come_as_one_ordered_stream(sandbox: Sandbox) -> None:
    result = sandbox.execute("set -x; echo 1; echo 2 >&2", timeout_s=20)
    assert result.output == "+ echo 1\n1\n+ echo 2\n2\n"


def test_two_runs_of_a_command_print_the_same(factory: SandboxFactory) -> None:
    command = "env | sort; ls -d $HOME $TMPDIR $TESTBED; python -c 'print({*\"abc\"})'; git status"
    outputs = set()
    for _ in range(2):
        box = factory.start(ROW, purpose="rollout")
        outputs.add(box.execute(command, timeout_s=20).output)
        box.stop()
    assert len(outputs) == 1
    assert "/testbed" in outputs.pop()


def test_the_repository_is_found_under_its_official_name(sandbox: Sandbox) -> None:
    result = sandbox.execute("cd / && ls /testbed/module.py && cd /testbed && pwd", timeout_s=20)
    assert result.output == "/testbed/module.py\n/testbed\n"


def test_the_repository_lies_where_the_row_says(factory: SandboxFactory) -> None:
    box = factory.start({**ROW, "workdir": "/app/code"}, purpose="rollout")
    try:
        assert box.workdir == "/app/code"
        result = box.execute("pwd; ls /app/code/module.py; echo $TESTBED", timeout_s=20)
        assert result.output == "/app/code\n/app/code/module.py\n/app/code\n"
        box.upload(b"new", "made")
        assert box.download("/app/code/made", limit_bytes=9) == b"new"
        assert box.execute("ls /testbed/module.py", timeout_s=20).returncode != 0
    finally:
        box.stop()


def test_home_and_tmp_are_the_sandboxs_own(factory: SandboxFactory, sandbox: Sandbox) -> None:
    sandbox.execute("echo mine > ~/file; echo mine > /tmp/file", timeout_s=20)
    other = factory.start(ROW, purpose="rollout")
    result = other.execute("ls ~/file /tmp/file; touch ~/x /tmp/x && echo mine", timeout_s=20)
    other.stop()
    assert result.output.count("No such file") == 2
    assert result.output.endswith("mine\n")


def test_the_time_limit_kills_the_whole_tree(sandbox: Sandbox) -> None:
    odd = sleep_seconds(sandbox)
    script = f"""
        echo before
        setsid sleep {odd} &
        (sleep {odd} &)
        (env -i setsid sleep {odd} &)
        nohup bash -c 'trap "" TERM HUP INT; sleep {odd}' &
        sleep {odd}"""
    result = sandbox.execute(script, timeout_s=1)
    assert result.timed_out
    assert result.returncode == -1
    assert result.output == "before\n"
    assert processes_with(b"sleep\0" + odd.encode()) == []
    assert sandbox.execute("echo still here", timeout_s=20).output == "still here\n"


def test_a_time_limit_spares_what_an_earlier_command_left_running(sandbox: Sandbox) -> None:
    odd = sleep_seconds(sandbox)
    assert not sandbox.execute(f"setsid sleep {odd} &", timeout_s=20).timed_out
    assert sandbox.execute("sleep 600", timeout_s=0.3).timed_out
    assert len(processes_with(b"sleep\0" + odd.encode())) == 1
    sandbox.stop()
    assert processes_with(b"sleep\0" + odd.encode()) == []


def test_a_background_child_does_not_delay_the_result(sandbox: Sandbox) -> None:
    result = sandbox.execute("(sleep 0.2; echo late) & echo now", timeout_s=60)
    assert result.output == "now\n"
    # What it prints later belongs to no command.
    assert sandbox.execute("sleep 0.5; echo next", timeout_s=60).output == "next\n"


def test_a_background_child_may_print_without_end(sandbox: Sandbox) -> None:
    sandbox.execute("yes > /dev/stdout & echo $! > pid", timeout_s=60)
    assert sandbox.execute("echo next; kill $(cat pid)", timeout_s=60).output == "next\n"


def test_a_gigabyte_of_output_is_bounded_in_memory(sandbox: Sandbox) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sandbox.execute("echo first; head -c 1000000000 /dev/zero; echo last", timeout_s=120)
    assert result.output.startswith("first\n")
    assert result.output.endswith("\0last\n")
    assert f"\n[{result.dropped_bytes} bytes dropped]\n" in result.output
    assert result.dropped_bytes == 1_000_000_011 - 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000


def test_output_that_is_not_utf8_is_kept_with_replacements(sandbox: Sandbox) -> None:
    assert sandbox.execute(r"printf 'a\377b\303\251\n'", timeout_s=20).output == "a\ufffdb\u00e9\n"


def test_a_cut_within_a_character_leaves_no_noise_after_the_gap(sandbox: Sandbox) -> None:
    half = "for i in {1..9000}; do printf '\\303\\251'; done"
    result = sandbox.execute(f"{half}; printf x; {half}", timeout_s=60)
    assert result.output.split(" bytes dropped]\n")[1].strip("\u00e9") == ""


def test_a_deleted_working_directory_fails_the_command_and_not_the_sandbox(
    sandbox: Sandbox,
) -> None:
    sandbox.execute("rm -rf /testbed; mkdir -p /tmp/aside; mv /testbed /tmp/aside", timeout_s=20)
    if sandbox.execute("true", timeout_s=20).returncode:
        result = sandbox.execute("echo unreachable", timeout_s=20)
        assert result.output.startswith("cannot enter the working directory /testbed")
        assert result.returncode == 126
    sandbox.upload(b"x", "again")
    assert sandbox.execute("ls", timeout_s=20).output == "again\n"


def test_a_command_that_kills_its_shell_costs_only_itself(sandbox: Sandbox) -> None:
    result = sandbox.execute("echo x > kept; echo bye; kill -KILL $PPID; sleep 5", timeout_s=20)
    assert (result.output, result.returncode) == ("bye\n", 137)
    assert sandbox.execute("cat kept", timeout_s=20).output == "x\n"


def test_a_command_that_halts_its_shell_costs_only_itself(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.sandbox.resident._REPLY_AFTER_KILL_S", 0.2)
    result = sandbox.execute("echo x > kept; echo bye; kill -STOP $PPID", timeout_s=1)
    assert (result.output, result.timed_out) == ("bye\n", True)
    assert sandbox.execute("cat kept", timeout_s=20).output == "x\n"


PLANT = """
for name in order out; do for n in {1..20}; do THING /.sandbox/$name.$n; done; done
for name in transfer runner commands replies life; do
  rm -f /.sandbox/$name; THING /.sandbox/$name
done
kill -KILL $PPID"""
"""Puts something where we will want to write next; then the shell has to be started again."""


@pytest.mark.parametrize("thing", ["ln -s VICTIM", "ln -s VICTIM/file", "mkdir -p", "mkfifo"])
def test_what_a_command_plants_between_us_leads_nowhere(
    sandbox: Sandbox, tmp_path: Path, thing: str
) -> None:
    # Links used to be followed: a command could write any file of ours.
    (tmp_path / "file").write_text("precious")
    script = PLANT.replace("THING", thing.replace("VICTIM", str(tmp_path)))
    sandbox.execute(f"{{ {script}\n}} 2>/dev/null", timeout_s=20)
    for number in range(5):
        assert sandbox.execute(f"echo {number}", timeout_s=20).output == f"{number}\n"
    sandbox.upload(b"ours", "uploaded")
    sandbox.execute(f"ln -sf {tmp_path}/file /.sandbox/transfer 2>/dev/null", timeout_s=20)
    assert sandbox.download("uploaded", limit_bytes=100) == b"ours"
    assert {path.name: path.read_text() for path in tmp_path.glob("*") if path.is_file()} == {
        "file": "precious"
    }


def test_a_control_folder_that_a_command_emptied_or_closed_serves_the_next(
    sandbox: Sandbox,
) -> None:
    for damage in ("rm -rf /.sandbox/*", "chmod -R 0 /.sandbox", "rm -rf /.sandbox"):
        sandbox.execute(f"{damage} 2>/dev/null", timeout_s=20)
        assert sandbox.execute("echo still here", timeout_s=20).output == "still here\n"
        sandbox.upload(b"x", "file")
        assert sandbox.download("file", limit_bytes=9) == b"x"


def test_a_very_long_command_runs(sandbox: Sandbox) -> None:
    text = "é" * 150_000
    result = sandbox.execute(f"cat > long <<'EOF'\n{text}\nEOF\nwc -c < long", timeout_s=20)
    assert result.output == "300001\n"


def test_errors_in_a_very_long_command_read_like_those_in_a_short_one(sandbox: Sandbox) -> None:
    script = "no-such-thing # {}\necho $# $0\nno-such-thing\n"
    short, long = (sandbox.execute(script.format("x" * size), timeout_s=20) for size in (1, 40_000))
    assert long.output == short.output
    assert "bash: line 3: no-such-thing: command not found" in short.output


def test_many_processes_are_killed_at_the_limit(sandbox: Sandbox) -> None:
    # A fork bomb that ends at 2,000: one without an end would take the machine where this fails.
    bomb = "b() { [ $1 = 0 ] || { b $(($1 - 1)) & b $(($1 - 1)) & }; sleep 600; }; b 9"
    result = sandbox.execute(bomb, timeout_s=60)
    assert "over the sandbox's limit of 100 processes" in result.output
    assert (result.returncode, result.timed_out) == (-1, False)
    assert sandbox.execute("echo alive", timeout_s=20).output == "alive\n"


def test_a_command_over_the_memory_limit_is_killed(sandbox: Sandbox) -> None:
    script = "python -c 'x = bytearray(1 << 29); import time; time.sleep(600)'"
    result = sandbox.execute(script, timeout_s=60)
    assert "over the sandbox's memory limit of 400 MiB" in result.output
    assert result.returncode == -1


def test_memory_that_processes_share_counts_once(sandbox: Sandbox) -> None:
    script = """python - <<'EOF'
import os, time
data = b"x" * (150 << 20)
children = [os.fork() or time.sleep(1.5) or os._exit(0) for _ in range(4)]
for child in children:
    os.waitpid(child, 0)
print("not killed")
EOF"""
    assert sandbox.execute(script, timeout_s=60).output == "not killed\n"


def test_files_cross_in_both_directions(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 1000
    sandbox.upload(data, "deep/er/file")
    assert sandbox.execute("wc -c < deep/er/file", timeout_s=20).output == "256000\n"
    assert sandbox.download("/testbed/deep/er/file", limit_bytes=1 << 20) == data
    assert sandbox.download("deep/er/file", limit_bytes=10) == data[:10]
    sandbox.upload(b"patch", "/tmp/patch.diff")
    assert sandbox.execute("cat /tmp/patch.diff", timeout_s=20).output == "patch"
    for path in ("-rf", "~/*", "a b'c\"d$e`f/\u00fcn\u00ef", "new\nline\n/file"):
        sandbox.upload(path.encode(), path)
        assert sandbox.download(f"/testbed/{path}", limit_bytes=99) == path.encode()
    for path in ("absent", "deep", "/dev/zero"):
        with pytest.raises(FileNotFoundError):
            sandbox.download(path, limit_bytes=10)


def test_a_file_that_cannot_be_written_is_the_sandboxs_error(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="cannot upload"):
        sandbox.upload(b"x", "/proc/nothing/here")


@pytest.mark.parametrize("path", ["/proc/nothing/here", "made/below", "dir", "dir/"])
def test_a_path_that_cannot_be_written_is_told_from_a_broken_sandbox(
    sandbox: Sandbox, path: str
) -> None:
    sandbox.execute("mkdir dir; echo > made", timeout_s=20)
    with pytest.raises(PathError, match="cannot upload"):
        sandbox.upload(b"x", path)
    sandbox.upload(b"x", "fine")


def test_stopping_leaves_no_process_and_no_file(factory: SandboxFactory, root: Path) -> None:
    box = factory.start(ROW, purpose="rollout")
    odd = sleep_seconds(box)
    box.execute(f"setsid sleep {odd} & mkdir -p a/b; chmod 0 a", timeout_s=20)
    box.stop()
    box.stop()
    assert processes_with(odd.encode()) == []
    assert leftovers(root) == []
    with pytest.raises(SandboxError, match="was stopped"):
        box.execute("true", timeout_s=1)


def test_stopping_from_another_thread_fails_the_command_that_runs(
    factory: SandboxFactory, root: Path
) -> None:
    box = factory.start(ROW, purpose="rollout")
    odd = sleep_seconds(box)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.execute, f"sleep {odd}", timeout_s=600)
        assert soon(lambda: processes_with(b"sleep\0" + odd.encode()))
        box.stop()
        with pytest.raises(SandboxError, match="was stopped"):
            running.result(timeout=60)
    assert processes_with(odd.encode()) == []
    assert leftovers(root) == []


def test_sixteen_at_once(factory: SandboxFactory, root: Path) -> None:
    def one(number: int) -> str:
        box = factory.start(ROW, purpose="rollout")
        outputs = [box.execute(f"echo {number}-{i}", timeout_s=60).output for i in range(10)]
        box.stop()
        return "".join(outputs)

    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(one, range(16)))
    assert outputs == ["".join(f"{n}-{i}\n" for i in range(10)) for n in range(16)]
    assert leftovers(root) == []


def test_a_killed_owner_leaves_nothing_after_the_janitor(
    factory: SandboxFactory, root: Path, owner_argv: list[str]
) -> None:
    odd = sleep_seconds(root)
    owner = start_owner([*owner_argv, odd])
    assert soon(lambda: len(processes_with(b"sleep\0" + odd.encode())) == 2)
    assert factory.janitor() == 0  # the owner lives
    kill_owner(owner)
    assert factory.janitor() == 1
    assert processes_with(odd.encode()) == []
    assert leftovers(root) == []
    assert factory.janitor() == 0


def test_the_processes_end_with_a_killed_owner_before_any_janitor(
    factory: SandboxFactory, root: Path, owner_argv: list[str]
) -> None:
    odd = sleep_seconds(root)
    kill_owner(start_owner([*owner_argv, odd]))
    assert soon(lambda: not processes_with(b"sleep\0" + odd.encode()))
    assert factory.janitor() == 1


def start_owner(argv: list[str]) -> "subprocess.Popen[bytes]":
    owner = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"started\n"
    return owner


def kill_owner(owner: "subprocess.Popen[bytes]") -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert owner.stdout is not None
    owner.stdout.close()
