"""Where and how a sweep is carried out: nothing here decides a result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.spec.identity import Runtime


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """One array of jobs: rollout workers on GPU nodes, or grading on CPU nodes."""

    n_tasks: Runtime[int] = 1
    """Array tasks (Slurm) or processes (local) at most."""
    throttle: Runtime[int | None] = None
    """Array tasks running at once; None: no throttle."""
    concurrency: Runtime[int] = 4
    """Runs (or grades) in flight in one task."""
    partition: Runtime[str | None] = None
    gres: Runtime[str | None] = None
    cpus: Runtime[int] = 1
    mem_gb: Runtime[float | None] = None
    time_min: Runtime[int] = 60
    extra: Runtime[Mapping[str, Any]] = field(default_factory=dict)
    """Further `sbatch` parameters, by submitit's names."""


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
    signal_delay_s: Runtime[int] = 120
    """USR2 comes this long before the time limit."""
    max_requeues: Runtime[int] = 20
    heartbeat_s: Runtime[float] = 20.0
    stale_s: Runtime[float] = 300.0
    """A claim whose counter stood still for so long, on the observer's clock, is taken over."""
    setup: Runtime[tuple[str, ...]] = ()
    """Shell lines before the worker starts (module loads, proxies)."""
    su_per_core_hour: Runtime[float] = 0.0
    su_per_gpu_hour: Runtime[float] = 0.0
    max_array_size: Runtime[int | None] = None
    """None: ask the site."""
    max_submit: Runtime[int | None] = None
    sandbox_memory_mb: Runtime[int | None] = None
    pids_limit: Runtime[int] = 512
    network_rollout: Runtime[bool] = True
    network_grade: Runtime[bool] = True
