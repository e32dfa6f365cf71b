"""The environment of this process, read here and passed down as values.

Owns every look at environment variables, so that the rest of the package is a function of its
arguments. Does not decide what a variable means.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping


def environment() -> dict[str, str]:
    """Return a copy of this process's environment variables."""
    return dict(os.environ)


_SLURM_OPTIONS = (
    "SLURM_",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SQUEUE_",
    "SINFO_",
    "SACCT_",
    "SCONTROL_",
)
"""Variables that Slurm's commands take for options. sbatch lets them win over a script's own lines,
and `SQUEUE_STATES`, say, hides jobs from whoever asks whether any are left."""


def scrubbed_slurm(env: Mapping[str, str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """Return `env` without what Slurm's commands would take for options.

    An enclosing job leaves `SLURM_*` there, a shell's profile perhaps `SBATCH_*`. `SLURM_CONF`
    stays: it says where the cluster is. So do the names in `keep`.
    """
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_SLURM_OPTIONS) or name == "SLURM_CONF" or name in keep
    }


def submission_options(env: Mapping[str, str]) -> dict[str, str]:
    """Return the options for submissions that a person's shell has set, by variable."""
    return {
        name: value
        for name, value in sorted(env.items())
        if name.startswith(("SBATCH_", "SALLOC_", "SRUN_"))
    }


@contextlib.contextmanager
def without_slurm_options(keep: Collection[str] = ()) -> Iterator[None]:
    """Take Slurm's option variables out of this process's environment for a while.

    For libraries that start sbatch with whatever environment there is; jobs inherit what is left.
    Not for several threads.
    """
    before = environment()
    kept = scrubbed_slurm(before, keep=keep)
    for name in before.keys() - kept.keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)
