"""Which memory a command's processes hold, read from real ones."""

import os
import subprocess
import sys

from pipeline.host.proctable import process_stat
from pipeline.sandbox.process_tree import memory_bytes

HOLDS_80_MIB = "x = b'x' * (80 << 20); print('ready', flush=True); input()"


def test_a_process_that_ended_since_it_was_listed_holds_no_memory():
    """Its pages counted whole, so that children ending together got their command killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_80_MIB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        listed = process_stat(child.pid)
        assert memory_bytes([listed], enough=1) > 80 << 20
        child.communicate(b"\n")
    assert memory_bytes([listed], enough=1) == 0


def test_memory_under_the_limit_is_told_without_reading_every_page_table():
    own = process_stat(os.getpid())
    assert memory_bytes([own], enough=1 << 50) > 0
