"""What a server's log has to say once the server has failed.

The log may be large, absent, or written to meanwhile; reading it never fails.
"""

import contextlib
import re
from pathlib import Path

TAIL_LINES = 25
_TAIL_BYTES = 65_536
_ERROR = re.compile(r"[\w.]*(?:Error|Exception): .+")


def last_words(log: Path) -> str:
    """Return the error that the server died of, where it named one, and the end of its log."""
    said = error_said(log)
    cause = f"it said: {said}; " if said else ""
    end = "\n".join(_last_lines(log)[-TAIL_LINES:]) or "(there is none)"
    return f"{cause}the end of {log}:\n{end}"


def error_said(log: Path) -> str:
    """Return the last error in a log that is no consequence of another; empty where there is none.

    vLLM's engine dies in a process of its own, and the server then only says that it did.
    """
    lines = reversed(_last_lines(log))
    errors = (_ERROR.search(line) for line in lines if "root cause" not in line)
    return next((found[0][:300] for found in errors if found is not None), "")


def size_of(log: Path) -> int:
    """Return the log's size in bytes, -1 where there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return -1


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, size_of(log) - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()
    return []
