"""What changes when a command is run again in the same state, and what does not."""

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
        ("deadbeef", "feedface"),
        ("x = 12", "x = 13"),
        ("/tmp/notes", "/tmp/other"),
        ("version 1.2.3", "version 1.2.4"),
    ],
)
def test_anything_else_is_one(first: str, again: str):
    assert stable(first) != stable(again)
