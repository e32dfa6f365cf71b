"""The environment of this process, read here and passed down as values.

Owns every look at environment variables, so that the rest of the package is a function of its
arguments. Does not decide what a variable means.
"""

import os
from collections.abc import Mapping


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
