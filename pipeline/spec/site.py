"""Where and how a sweep is carried out: nothing here decides a result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.fields.bounds import Amount, Count, Minutes, Natural, Seconds
from pipeline.fields.identity import Runtime


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """One array of jobs: rollout workers on GPU nodes, or grading on CPU nodes."""

    n_tasks: Runtime[Count] = 1
    """Array tasks (Slurm) or processes (local) at most."""
    throttle: Runtime[Count | None] = None
    """Array tasks running at once; None: no throttle."""
    concurrency: Runtime[Count] = 4
    """Runs (or grades) in flight in one task."""
    partition: Runtime[str | None] = None
    qos: Runtime[str | None] = None
    constraint: Runtime[str | None] = None
    """Features that a node must have."""
    reservation: Runtime[str | None] = None
    nodelist: Runtime[str | None] = None
    exclude: Runtime[str | None] = None
    """Nodes that no task is started on."""
    licenses: Runtime[str | None] = None
    gres: Runtime[str | None] = None
    cpus: Runtime[Count] = 1
    mem_gb: Runtime[Seconds | None] = None
    time_min: Runtime[Minutes] = 60
    extra: Runtime[Mapping[str, Any]] = field(default_factory=dict)
    """Further options of sbatch by their long names, such as `gpus-per-node: 2`. true gives a
    switch; null and false leave an option out, also one that would be given by itself."""


@dataclass(frozen=True, kw_only=True)
class SiteSpec:
    """A cluster, or this machine."""

    name: Runtime[str]
    kind: Runtime[Literal["local", "slurm"]]
    rollout: Runtime[PoolSpec] = PoolSpec()
    grading: Runtime[PoolSpec] = PoolSpec()
    account: Runtime[str | None] = None
    scratch: Runtime[str | None] = None
    """Node-local folder for sandboxes; None: $TMPDIR, else the system's temporary folder."""
    images: Runtime[str | None] = None
    """Folder of staged SIF files."""
    signal_delay_s: Runtime[Natural] = 120
    """USR2 comes this long before the time limit."""
    max_requeues: Runtime[Natural] = 20
    heartbeat_s: Runtime[Seconds] = 20.0
    stale_s: Runtime[Seconds] = 300.0
    """A claim whose counter stood still for so long, on the observer's clock, is taken over."""
    setup: Runtime[tuple[str, ...]] = ()
    """Shell lines before the worker starts (module loads, proxies); one that fails ends the job."""
    keep_variables: Runtime[tuple[str, ...]] = ()
    """`SBATCH_*`, `SALLOC_*` and `SRUN_*` variables of the launching shell that may speak for
    submissions, over what is said here. All others are kept from them."""
    su_per_core_hour: Runtime[Amount] = 0.0
    su_per_gpu_hour: Runtime[Amount] = 0.0
    max_array_size: Runtime[Count | None] = None
    """None: ask the site."""
    max_submit: Runtime[Count | None] = None
    sandbox_memory_mb: Runtime[Count | None] = None
    pids_limit: Runtime[Count] = 512
    network_rollout: Runtime[bool] = True
    network_grade: Runtime[bool] = True
    wheels: Runtime[str | None] = None
    """Folder of wheels that evaluations may build with where nothing can be fetched."""
