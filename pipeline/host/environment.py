"""The environment of this process, read here and passed down as values.

Owns every look at environment variables, so that the rest of the package is a function of its
arguments. Does not decide what a variable means.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping


def environment() -> dict[str, str]:
    """Return a copy of this process's environment variables."""
    return dict(os.environ)


def scrubbed_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without what an enclosing Slurm job left in it.

    A job submitted from within a job inherits `SLURM_*` and takes parts of them as options.
    `SLURM_CONF` stays: it says where the cluster is.
    """
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }


@contextlib.contextmanager
def without_slurm_job() -> Iterator[None]:
    """Take an enclosing job's variables out of this process's environment for a while.

    For libraries that start sbatch with whatever environment there is. Not for several threads.
    """
    before = environment()
    kept = scrubbed_slurm(before)
    for name in before.keys() - kept.keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)
