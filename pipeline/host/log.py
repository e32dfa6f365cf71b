"""What a worker tells people, said without risk: no word is worth a run.

A job's output may lie on the very disk that is full, or go through a daemon of Slurm's that has
died. Writing it then fails, and must not be what ends a run. Doors speak to a terminal: they print.
"""

import contextlib
import sys


def say(text: str) -> None:
    """Write a line to stderr, if it can be written."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
