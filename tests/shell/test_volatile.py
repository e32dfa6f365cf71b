"""What changes when a command is run again in the same state, and what does not."""

import subprocess
import time
from pathlib import Path

import pytest

from pipeline.shell.volatile import stable


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("3 passed in 0.12s", "3 passed in 1.40s"),
        ("Ran 3 tests in 0.002s", "Ran 3 tests in 0.017s"),
        ("real 0m1.203s", "real 0m0.998s"),
        ("-rw-r--r-- 1 a a 12 Dec  1 05:10 x.py", "-rw-r--r-- 1 a a 12 Dec  2 17:59 x.py"),
        ("Date:   Tue Dec 1 05:10:03 2026 +0000", "Date:   Wed Dec 2 06:11:04 2026 +0100"),
        ("2026-12-01 05:10:03,123 INFO", "2026-12-02T06:11:04Z INFO"),
        ("<Thing object at 0x7f3a10b2c4d0>", "<Thing object at 0x7fd0fe10a1b0>"),
        ("[main 1a2b3c4] fix", "[main 9f8e7d6] fix"),
        ("[main (root-commit) 1234567] fix", "[main (root-commit) 9f8e7d6] fix"),
        ("/tmp/tmpab12_x/out", "/tmp/tmpzz99-y/out"),
        ("started pid 4711", "started pid 12"),
    ],
)
def test_times_addresses_and_hashes_are_no_difference(first: str, again: str):
    assert stable(first) == stable(again)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("3 passed in 0.12s", "2 passed, 1 failed in 0.12s"),
        ("total 1203", "total 1204"),
        ("1234567 bytes", "7654321 bytes"),
        ("[1, 1234567]", "[1, 7654321]"),
        ("[main 1234567] fix", "[other 1234567] fix"),
        ("[main 1a2b3c4] fix", "[main 1a2b3c4] fixed"),
        ("deadbeef", "feedface"),
        ("x = 12", "x = 13"),
        ("/tmp/notes", "/tmp/other"),
        ("version 1.2.3", "version 1.2.4"),
    ],
)
def test_anything_else_is_one(first: str, again: str):
    assert stable(first) != stable(again)


COMMIT = (
    "git init -q . && git config user.email a@b.c && git config user.name a && echo x > x.py "
    "&& git add . && git commit -m fix | head -1"
)
VOLATILE = (
    "date",
    "date -u +%FT%T",
    "python3 -c 'print(object())'",
    "mktemp -u",
    COMMIT,
    "echo took ${EPOCHREALTIME}s",
)
OTHERWISE = ("echo $RANDOM $RANDOM", "date +%N", "cat /proc/uptime")


def printed(command: str, folder: Path) -> str:
    folder.mkdir()
    ran = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=True)
    return ran.stdout.decode()


def test_real_commands_run_again_differ_in_nothing_but_what_the_rules_list(tmp_path: Path):
    commands = (*VOLATILE, *OTHERWISE)
    first = [printed(c, tmp_path / f"a{i}") for i, c in enumerate(commands)]
    time.sleep(1.1)
    again = [printed(c, tmp_path / f"b{i}") for i, c in enumerate(commands)]
    for command, one, other in zip(commands, first, again, strict=True):
        assert one != other, command
        assert (stable(one) == stable(other)) is (command in VOLATILE), command
