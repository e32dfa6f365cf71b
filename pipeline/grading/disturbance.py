"""Was a test run disturbed from outside? What the log alone would call the patch's fault.

A test run that something killed, or that passed a limit of ours, leaves a log that looks like one
of failing tests. Owns the signs of that: the sandbox's word on its limits, the exit status of the
test command and of the script, and what bash says of a killed child. Pure. A crash of the tests
themselves (a segmentation fault, an abort) is no disturbance: a patch can cause it.
"""

import re
import signal

from pipeline.protocols import CommandResult

_END_OF_TESTS = ">>>>> End Test Output"
_EXIT_CODE = re.compile(r">>>>> Test Exit Code:\s*(-?\d+)")

_FROM_OUTSIDE = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGXCPU,
    signal.SIGUSR2,
)
"""Signals by which a machine, its scheduler or a user ends a process."""

_SIGNAL_OF = {
    # A shell's status for a killed child.
    **{128 + number: number for number in _FROM_OUTSIDE},
    # What Python's `sys.exit(-signal)` makes of it. 255 and 254 are how many programs fail.
    **{256 - number: number for number in (signal.SIGKILL, signal.SIGTERM)},
}

_KILLED_CHILD = re.compile(
    r"^\S*/eval\.sh: line (\d+):\s+\d+ (Killed|Terminated|Hangup)\b", re.MULTILINE
)
"""How bash reports a command of the evaluation script that a signal ended."""

_LIMITS = {
    "memory": "the sandbox's memory limit (cluster.sandbox_memory_mb)",
    "processes": "the sandbox's limit of processes (cluster.pids_limit)",
}


def exit_code_of_tests(log: str) -> int | None:
    """Return the exit status of the test command; None where the log does not get that far.

    The evaluation script writes it behind the end of the tests, where no test can print.
    """
    _, end, after = log.rpartition(_END_OF_TESTS)
    found = _EXIT_CODE.search(after) if end else None
    return int(found[1]) if found else None


def disturbance(ran: CommandResult, log: str) -> str | None:
    """Return what disturbed a test run from outside; None where nothing is known to have.

    Args:
        ran: how the evaluation script ended, the time limit aside.
        log: all that it printed.
    """
    if ran.limit is not None:
        return f"the tests were killed over {_LIMITS[ran.limit]}"
    code = exit_code_of_tests(log)
    if code in _SIGNAL_OF:
        return f"the test command was killed ({_SIGNAL_OF[code].name}, exit status {code})"
    if ran.returncode in _SIGNAL_OF:
        name = _SIGNAL_OF[ran.returncode].name
        return f"the evaluation script was killed ({name}, exit status {ran.returncode})"
    child = _KILLED_CHILD.search(log)
    if child is not None:
        return f"line {child[1]} of the evaluation script was ended from outside ({child[2]})"
    return None
