"""A job's limits against the work that it is to do: time, memory, the server's cache.

What could never finish is a problem, and is refused. What will only go slowly, or lose work at a
job's end, is a remark with its numbers. How long runs take is taken from those that are known.
"""

from collections.abc import Iterator, Sequence

from pipeline.planning.history import History
from pipeline.planning.problem import Problem
from pipeline.plural import plural
from pipeline.records.plan import PlannedRun
from pipeline.spec.model import ModelSpec
from pipeline.spec.site import PoolSpec
from pipeline.spec.sweep import SweepSpec
from pipeline.worker.deadline import KNOWN_RUNS, MORE_THAN_IN_VAIN, percentile_95

MEBIBYTES_A_GB = 1024


def _run_s(spec: SweepSpec, wall_s: Sequence[float]) -> float:
    """Return the time to allow a run, as a worker does: known times, or else the expectation."""
    return percentile_95(list(wall_s)) if len(wall_s) >= KNOWN_RUNS else spec.expected_wall_s


def limit_problems(spec: SweepSpec, past: History) -> Iterator[Problem]:
    """Yield the limits within which nothing could ever finish."""
    run_s = _run_s(spec, past.wall_s)
    hopeless = _hopeless(spec, past)
    if hopeless and len(hopeless) == len(past.todo):
        message = _cut_short(spec, past, hopeless)
        yield Problem(field="cluster.rollout.time_min", message=message)
    for model in spec.models.values():
        yield from _too_short_for_a_run(spec, model, run_s)
        cache = model.serve.cache_tokens
        if model.kind == "vllm" and cache is not None and cache < model.context_length:
            yield Problem(
                field=f"models.{model.name}.context_length",
                message=(
                    f"a window of {model.context_length:,} tokens does not fit a cache of "
                    f"{cache:,} (serve.cache_tokens), and vLLM would not start; lower it"
                ),
            )
    if spec.grade:
        yield from _too_short_for_a_grading(spec)
    for role, pool in _pools(spec).items():
        one_gb = _sandbox_gb(spec)
        if pool.mem_gb is not None and one_gb > pool.mem_gb:
            yield Problem(
                field=f"cluster.{role}.mem_gb",
                message=(
                    f"one sandbox may take {one_gb:.0f} GB (cluster.sandbox_memory_mb), and a task "
                    f"has {pool.mem_gb:.0f}"
                ),
            )


def limit_remarks(spec: SweepSpec, past: History) -> Iterator[str]:
    """Yield what the limits make slow or wasteful, with the numbers and what to change."""
    hopeless = _hopeless(spec, past)
    if hopeless and len(hopeless) < len(past.todo):
        yield f"cluster.rollout.time_min: {_cut_short(spec, past, hopeless)}"
    for role, pool in _pools(spec).items():
        all_gb = pool.concurrency * _sandbox_gb(spec)
        if pool.mem_gb is not None and all_gb > pool.mem_gb:
            yield (
                f"cluster.{role}: {plural(pool.concurrency, 'sandbox', 'sandboxes')} of up to "
                f"{_sandbox_gb(spec):.0f} GB make {all_gb:.0f} GB, and a task has "
                f"{pool.mem_gb:.0f}: Slurm may end it when "
                "they fill up; fewer (.concurrency), smaller (cluster.sandbox_memory_mb), or more "
                ".mem_gb"
            )
    for model in spec.models.values():
        yield from _waiting_slots(spec, model)
        yield from _runs_longer_than_a_job(spec, model)


def _hopeless(spec: SweepSpec, past: History) -> list[PlannedRun]:
    """Return the open runs that a job of this length has begun in vain before."""
    if spec.cluster.kind != "slurm":
        return []
    had_s = past.cut_short_s
    return [
        run
        for run in past.todo
        if run.run_id in had_s
        and _room_s(spec, spec.models[run.model]) < had_s[run.run_id] * MORE_THAN_IN_VAIN
    ]


def _cut_short(spec: SweepSpec, past: History, hopeless: Sequence[PlannedRun]) -> str:
    longest = max(hopeless, key=lambda run: past.cut_short_s[run.run_id])
    had_s = past.cut_short_s[longest.run_id]
    needed_s = had_s * MORE_THAN_IN_VAIN + spec.cluster.signal_delay_s
    needed_s += _start_s(spec.models[longest.model])
    return (
        f"{len(hopeless)} of {len(past.todo)} open runs were cut short when their job ended "
        f"({longest.run_id} after {_minutes(had_s)}) and will not restart in jobs of "
        f"{spec.cluster.rollout.time_min} min; ask for {_whole_minutes(needed_s)} or more"
    )


def _room_s(spec: SweepSpec, model: ModelSpec) -> float:
    """Return the longest time that a job leaves a run of `model`."""
    site = spec.cluster
    return site.rollout.time_min * 60 - _start_s(model) - site.signal_delay_s


def _too_short_for_a_run(spec: SweepSpec, model: ModelSpec, run_s: float) -> Iterator[Problem]:
    site = spec.cluster
    if site.kind != "slurm":
        return
    start_s = _start_s(model)
    needed_s = start_s + run_s + site.signal_delay_s
    if site.rollout.time_min * 60 >= needed_s:
        return
    yield Problem(
        field="cluster.rollout.time_min",
        message=(
            f"a job of {site.rollout.time_min} min ends before one run of {model.name} can: "
            f"{_minutes(start_s)} to start the server (serve.expected_start_s), "
            f"{_minutes(run_s)} a run (agent.expected_wall_s, or 95% of those that are known), "
            f"{_minutes(site.signal_delay_s)} to end well (cluster.signal_delay_s); nothing would "
            f"ever finish; ask for {_whole_minutes(needed_s)} or more"
        ),
    )


def _too_short_for_a_grading(spec: SweepSpec) -> Iterator[Problem]:
    site = spec.cluster
    needed_s = spec.grade_timeout_s + site.signal_delay_s
    if site.kind == "slurm" and site.grading.time_min * 60 < needed_s:
        yield Problem(
            field="cluster.grading.time_min",
            message=(
                f"a job of {site.grading.time_min} min is shorter than one grading may be: "
                f"{_minutes(spec.grade_timeout_s)} (grade_timeout_s) and "
                f"{_minutes(site.signal_delay_s)} to end well (cluster.signal_delay_s); nothing "
                f"would be graded; ask for {_whole_minutes(needed_s)} or more"
            ),
        )


def _waiting_slots(spec: SweepSpec, model: ModelSpec) -> Iterator[str]:
    if model.kind != "vllm":
        return
    slots, serve = spec.cluster.rollout.concurrency, model.serve
    if slots > serve.max_num_seqs:
        yield (
            f"cluster.rollout.concurrency: {plural(slots, 'run')} at once, and the server of "
            f"{model.name} "
            f"answers {serve.max_num_seqs} at once (serve.max_num_seqs)"
        )
    each = min(
        max(agent.expected_context_tokens for agent in spec.agents.values()), model.context_length
    )
    if serve.cache_tokens is not None and slots * each > serve.cache_tokens:
        yield (
            f"cluster.rollout.concurrency: {plural(slots, 'run')} of about {each:,} tokens "
            f"(agent.expected_context_tokens) need a cache of {slots * each:,}, and that of "
            f"{model.name} holds about {serve.cache_tokens:,} (serve.cache_tokens): "
            f"{max(1, serve.cache_tokens // each)} fit, the others wait"
        )


def _runs_longer_than_a_job(spec: SweepSpec, model: ModelSpec) -> Iterator[str]:
    site = spec.cluster
    if site.kind != "slurm" or model.kind == "sim":
        return
    room_s = _room_s(spec, model)
    longest_s = max(agent.wall_limit_s for agent in spec.agents.values())
    if room_s < longest_s:
        yield (
            f"cluster.rollout.time_min: a run of {model.name} may take "
            f"{_minutes(longest_s)} (agent.wall_limit_s), and a job leaves it "
            f"{_minutes(room_s)}; runs longer than that are never finished, and are named by status"
        )


def _start_s(model: ModelSpec) -> float:
    return model.serve.expected_start_s if model.kind == "vllm" else 0.0


def _sandbox_gb(spec: SweepSpec) -> float:
    return (spec.cluster.sandbox_memory_mb or 0) / MEBIBYTES_A_GB


def _pools(spec: SweepSpec) -> dict[str, PoolSpec]:
    pools = {"rollout": spec.cluster.rollout}
    return {**pools, "grading": spec.cluster.grading} if spec.grade else pools


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _whole_minutes(seconds: float) -> str:
    return f"{int(-(-seconds // 60))} min"
