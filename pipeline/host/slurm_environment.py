"""Which environment variables Slurm's commands take for options, and keeping them away from those.

sbatch lets them win over a script's own lines, and `SQUEUE_STATES`, say, hides jobs from whoever
asks whether any are left. An enclosing job leaves such variables, or a shell's profile.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping

from pipeline.host.environment import environment

_OF_COMMANDS = ("SLURM_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_")
_OF_SBATCH = frozenset(
    word
    for line in (
        "ACCOUNT ACCTG_FREQ ARRAY_INX BATCH BURST_BUFFER CLUSTERS CLUSTER_CONSTRAINT",
        "CONSTRAINT CONTAINER CONTAINER_ID CORE_SPEC CPUS_PER_GPU CPU_FREQ_REQ DEBUG",
        "DELAY_BOOT DISTRIBUTION ERROR EXCLUSIVE EXPORT GET_USER_ENV GPUS GPUS_PER_NODE",
        "GPUS_PER_SOCKET GPUS_PER_TASK GPU_BIND GPU_FREQ GRES GRES_FLAGS HINT IGNORE_PBS INPUT",
        "JOB_NAME MEM_BIND MEM_BIND_LIST MEM_BIND_PREFER MEM_BIND_TYPE MEM_BIND_VERBOSE",
        "MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE NETWORK NO_KILL NO_REQUEUE OOM_KILL_STEP",
        "OPEN_MODE OUTPUT OVERCOMMIT PARTITION POWER PREFER PROFILE QOS REQUEUE REQ_SWITCH",
        "RESERVATION SEGMENT_SIZE SIGNAL SPREAD_JOB STEPMGR THREADS_PER_CORE THREAD_SPEC",
        "TIMELIMIT TRES_BIND TRES_PER_TASK UMASK USE_MIN_NODES WAIT WAIT4SWITCH WAIT_ALL_NODES",
        "WCKEY",
    )
    for word in line.split()
)
"""By sbatch(1), 22.05 to 25.05. Other variables of that prefix are a person's own."""


def scrubbed_slurm(env: Mapping[str, str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """Return `env` without what Slurm's commands would take for options.

    An enclosing job leaves `SLURM_*` there, a shell's profile perhaps `SBATCH_*`. `SLURM_CONF`
    stays: it says where the cluster is. So do the names in `keep`.
    """
    return {name: value for name, value in env.items() if not _is_option(name) or name in keep}


def submission_options(env: Mapping[str, str]) -> dict[str, str]:
    """Return the options for submissions that a person's shell has set, by variable."""
    return {
        name: value
        for name, value in sorted(env.items())
        if _is_option(name) and name.startswith(("SBATCH_", "SALLOC_", "SRUN_"))
    }


def _is_option(name: str) -> bool:
    if name.startswith("SBATCH_"):
        return name.removeprefix("SBATCH_") in _OF_SBATCH
    return name != "SLURM_CONF" and name.startswith(_OF_COMMANDS)


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
