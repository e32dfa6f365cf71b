"""What a job printed last: why it ended, in one line.

Reads the logs that submitit and Slurm write; what is in a results folder stays true without them.
"""

import re
from pathlib import Path

TAIL_BYTES = 65_536
N_LINES = 3
_ERRORS = (r"(?m)^pipeline\.[\w.]+: ", r"(?m)^[\w.]+(?:Error|Exception): ")
"""Our own words first: they quote what they follow from, another program's traceback perhaps."""
_NOISE = re.compile(r"^(submitit (INFO|ERROR)|Traceback|srun: error: .* task \d+: Exited)")
_ENDED_WELL = "Job completed successfully"


def error_in(text: str) -> str:
    """Return the error that ended a worker, on one line; empty where there was none."""
    for pattern in _ERRORS:
        raised = list(re.finditer(pattern, text))
        if raised:
            return " ".join(text[raised[-1].end() :].split())
    return ""


def tail_of(log: Path) -> str | None:
    """Return the end of a log; None where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def ended_well(text: str) -> bool:
    """Return whether a worker came to its own end, whatever it found to do."""
    return _ENDED_WELL in text


def nothing_started(text: str) -> str:
    """Return a worker's line on why it began nothing; empty where it has none."""
    found = re.findall(r"(?m)^nothing (?:more )?started: .*", text)
    return str(found[-1]) if found else ""


def last_words(text: str) -> str:
    """Return why a job ended: its error, or else the last lines that say anything."""
    why = nothing_started(text) or error_in(text)
    if why:
        return why
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not _NOISE.match(line)]
    return " / ".join(said[-N_LINES:])
