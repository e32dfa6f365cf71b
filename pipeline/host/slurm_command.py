"""Asking Slurm's commands: with a time limit, and without what a shell has set as their options."""

import shutil
from collections.abc import Collection, Sequence

from pipeline.host.environment import environment
from pipeline.host.process import Completed, run_command
from pipeline.host.slurm_environment import scrubbed_slurm

COMMAND_TIMEOUT_S = 60.0


def slurm_answer(argv: Sequence[str]) -> str | None:
    """Return what a command of Slurm's printed; None if it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return None
    done = slurm_said(argv)
    return done.text if done.returncode == 0 and not done.timed_out else None


def slurm_said(argv: Sequence[str], *, keep: Collection[str] = ()) -> Completed:
    """Return how a command of Slurm's ended and what it printed, right or wrong.

    Args:
        argv: the command.
        keep: variables that it may take for options all the same.

    Raises:
        OSError: there is no such command.
    """
    env = scrubbed_slurm(environment(), keep=keep)
    return run_command(argv, timeout_s=COMMAND_TIMEOUT_S, env=env)
