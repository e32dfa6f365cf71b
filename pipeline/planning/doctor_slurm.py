"""What a sweep needs of Slurm, asked of Slurm: partitions, limits, accounts, a dry submission.

Nothing here trusts a site's documents or our own conf/cluster files: those are what is checked.
"""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.host.environment import environment
from pipeline.host.slurm_facts import (
    Association,
    Partition,
    SlurmLimits,
    associations,
    gpus_of,
    has_slurm,
    partitions,
    slurm_limits,
    tightest,
)
from pipeline.planning.cluster_run import shell_options
from pipeline.planning.doctor import Check, fail, ok, warn
from pipeline.planning.slurm_site import JobRequest, pool_gpus
from pipeline.planning.submit import refusals
from pipeline.plural import plural
from pipeline.records.layout import Layout
from pipeline.spec.site import PoolSpec, SiteSpec
from pipeline.spec.sweep import SweepSpec

MIN_KILL_WAIT_S = 15
"""A worker that is terminated needs some seconds to publish and to stop its server."""


def slurm_checks(layout: Layout, spec: SweepSpec) -> Iterator[Check]:
    """Yield what there is to say about Slurm here, for the sweep `spec`."""
    site = spec.cluster
    if site.kind != "slurm":
        yield ok("slurm", "not used: the sweep runs on this machine")
        return
    if not has_slurm():
        yield fail(
            "slurm",
            "no sbatch and squeue on PATH",
            "run this on a login node of the cluster, or load its Slurm module",
        )
        return
    limits = slurm_limits()
    if limits is None:
        yield fail("slurm", "scontrol does not answer", "ask the site if Slurm is down")
        return
    yield from _controller(limits, site)
    for line in shell_options(site, environment()):
        yield ok("shell's options", line)
    found = partitions() or []
    for role, pool in _pools(site).items():
        yield from _partition(role, pool, found)
    yield from _accounts(limits, site)
    yield from _dry_submission(layout, spec)
    if spec.grade and site.grading.gres:
        yield warn(
            "grading pool",
            f"asks for {site.grading.gres}",
            "grading needs no GPU and would be billed for it: cluster.grading.gres=null",
        )


def _controller(limits: SlurmLimits, site: SiteSpec) -> Iterator[Check]:
    yield ok("slurm", f"version {limits.version}, arrays of up to {limits.max_array_size} tasks")
    if limits.kill_wait_s is not None and limits.kill_wait_s < MIN_KILL_WAIT_S:
        yield warn(
            "kill wait",
            f"{limits.kill_wait_s} s from SIGTERM to SIGKILL",
            "a cancelled or preempted worker may be killed before it has cleaned up; "
            "claims are then taken over, no result is lost",
        )
    largest = max(pool.n_tasks for pool in _pools(site).values())
    if limits.max_array_size is not None and largest > limits.max_array_size:
        yield ok("arrays", f"{largest} tasks are submitted as several arrays")


def _partition(role: str, pool: PoolSpec, found: Sequence[Partition]) -> Iterator[Check]:
    name = f"{role} partition"
    kinds = [
        p for p in found if (p.is_default if pool.partition is None else p.name == pool.partition)
    ]
    if not kinds:
        known = ", ".join(sorted({p.name for p in found})) or "none"
        yield fail(
            name, f"no partition {pool.partition!r}; there are {known}", f"cluster.{role}.partition"
        )
        return
    limit = tightest(p.time_limit_min for p in kinds)
    where = pool.partition or "the default partition"
    if limit is not None and pool.time_min > limit:
        yield fail(
            name,
            f"{where} allows {plural(limit, 'minute')}, {pool.time_min} are asked for",
            f"cluster.{role}.time_min={limit}, or another partition",
        )
    fitting = [p for p in kinds if p.available and _fits(p, pool)]
    if not fitting:
        has = "; ".join(
            f"{p.n_nodes} x {p.cpus} cores, {p.mem_mb // 1024} GB, {p.gres or 'no gres'}"
            for p in kinds
        )
        yield fail(
            name,
            f"no node of {where} has what a task requests (it has {has})",
            f"lower cluster.{role}.cpus, .mem_gb or .gres",
        )
        return
    nodes = sum(p.n_nodes for p in fitting)
    yield ok(name, f"{where}: {plural(nodes, 'node has', 'nodes have')} what a task requests")


def _fits(partition: Partition, pool: PoolSpec) -> bool:
    memory_mb = (pool.mem_gb or 0) * 1024
    return (
        partition.cpus >= pool.cpus
        and partition.mem_mb >= memory_mb
        and gpus_of(partition.gres) >= pool_gpus(pool)
    )


def _accounts(limits: SlurmLimits, site: SiteSpec) -> Iterator[Check]:
    if not limits.accounting:
        yield ok("accounting", "no database; sacct is unavailable and not needed")
        return
    known = associations()
    if not known:
        yield warn("accounting", "sacctmgr lists no account for you", "ask the site for an account")
        return
    names = sorted({a.account for a in known})
    if site.account is not None and site.account not in names:
        yield fail(
            "account",
            f"{site.account!r} is not yours; you have {', '.join(names)}",
            "cluster.account=NAME (Grace: export PLANPRUNE_ACCOUNT=NAME)",
        )
        return
    yield ok("account", site.account or f"the default of {', '.join(names)}")
    yield from _submit_limit(limits, site, known)


def _submit_limit(
    limits: SlurmLimits, site: SiteSpec, known: Sequence[Association]
) -> Iterator[Check]:
    most = tightest([site.max_submit, *(a.max_submit for a in known)])
    wanted = site.rollout.n_tasks + site.grading.n_tasks
    if most is None or limits.enforced is None:
        return
    said = f"{plural(most, 'job')} at once; a sweep with one model submits up to {wanted}"
    yield ok("submit limit", said if wanted <= most else f"{said}, and then fewer tasks")


def _dry_submission(layout: Layout, spec: SweepSpec) -> Iterator[Check]:
    requests = [JobRequest(role="rollout", model=model, n_tasks=2) for model in spec.models]
    if spec.grade:
        requests.append(JobRequest(role="grading", model="", n_tasks=2))
    complaints = refusals(layout, spec, requests)
    for complaint in complaints:
        yield fail(
            "sbatch --test-only",
            complaint,
            "set cluster.rollout.* and cluster.grading.* to what the site has",
        )
    if not complaints:
        yield ok("sbatch --test-only", f"{len(requests)} kinds of job would be accepted")


def _pools(site: SiteSpec) -> Mapping[str, PoolSpec]:
    return {"rollout": site.rollout, "grading": site.grading}
