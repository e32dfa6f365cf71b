"""What forked pairs, planned looks and a seed allocation would save of a sweep, before it begins.

Shares of the runs' GPU-hours, as ranges: measured ones where there are any (docs/planning.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.planning.estimate import hours_text, range_text
from pipeline.planning.forks import fork_problems
from pipeline.records.plan import PlannedRun
from pipeline.spec.sweep import SweepSpec

SHARED_CALLS = {
    "plan_prune": 0.24,
    "observation_mask": 0.27,
    "dedup": 0.59,
    "llm_summary": 0.70,
}
"""Share of the calls before a policy's first edit, by kind, on recorded trajectories."""
UNKNOWN_SHARE = (0.0, 0.7)
"""Of a policy that is not among them."""
LOOKS_RUNS = {"obrien_fleming": (0.53, 0.85), "pocock": (0.38, 0.71)}
"""Share of the runs that five looks need, over true differences from 0 to -8 points."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """One way to need fewer GPU-hours."""

    name: str
    low: float
    """Share of the GPU-hours that is needed with it, at best."""
    high: float
    is_on: bool


def levers(spec: SweepSpec, runs: Sequence[PlannedRun]) -> Iterator[Lever]:
    """Yield what each lever would leave, whether or not the sweep uses it.

    Args:
        spec: the sweep.
        runs: as planned.
    """
    low, high = _fork_shares(spec, runs)
    yield Lever(name="fork=true", low=low, high=high, is_on=spec.fork)
    low, high = LOOKS_RUNS[spec.analysis.spending]
    yield Lever(
        name=f"looks, {spec.analysis.spending}",
        low=low,
        high=high,
        is_on=bool(spec.analysis.looks),
    )
    if spec.mean_seeds is not None:
        share = len(runs) / _n_with_all_seeds(spec, runs)
        yield Lever(name=f"mean_seeds={spec.mean_seeds:g}", low=share, high=share, is_on=True)


def expected_gpu_hours(
    spec: SweepSpec, todo: Sequence[PlannedRun], gpu_hours: float, *, is_whole: bool
) -> tuple[float, float]:
    """Return the least and the most that the open runs are expected to use, with the levers on.

    Args:
        spec: the sweep.
        todo: its open runs.
        gpu_hours: of these, without forks and looks.
        is_whole: no run is made yet. What looks save of the rest of a sweep is unknown: nothing.
    """
    low, high = _fork_shares(spec, todo) if spec.fork else (1.0, 1.0)
    if spec.analysis.looks and is_whole:
        at_best, at_worst = LOOKS_RUNS[spec.analysis.spending]
        low, high = low * at_best, high * at_worst
    return gpu_hours * low, gpu_hours * high


def levers_text(spec: SweepSpec, runs: Sequence[PlannedRun], gpu_hours: float) -> str:
    """Return the lines of a dry run.

    Args:
        spec: the sweep.
        runs: as planned.
        gpu_hours: of these runs, without forks and looks.
    """
    found = list(levers(spec, runs))
    base = gpu_hours * _n_with_all_seeds(spec, runs) / max(1, len(runs))
    lines = [f"without any lever about {hours_text(base)} GPU-hours; with"]
    lines += [_line(base, lever, "on" if lever.is_on else "off") for lever in found]
    together = Lever(name="all of them", low=1.0, high=1.0, is_on=True)
    for lever in found:
        together = Lever(
            name=together.name,
            low=together.low * lever.low,
            high=together.high * lever.high,
            is_on=together.is_on and lever.is_on,
        )
    return "\n".join([*lines, _line(base, together, "docs/planning.md")])


def _line(base: float, lever: Lever, note: str) -> str:
    return f"  {lever.name}: {range_text((base * lever.low, base * lever.high))} ({note})"


def _fork_shares(spec: SweepSpec, runs: Sequence[PlannedRun]) -> tuple[float, float]:
    """Return the least and the largest share of the calls that forked runs would make."""
    made = [0.0, 0.0]
    forked = _as_forked(spec)
    for run in runs:
        shared = (0.0, 0.0)
        if run.arm in forked:
            kind = spec.arms[run.arm].policy.kind
            known = SHARED_CALLS.get(kind)
            shared = UNKNOWN_SHARE if known is None else (known, known)
        made[0] += 1 - shared[1]
        made[1] += 1 - shared[0]
    n_runs = max(1, len(runs))
    return made[0] / n_runs, made[1] / n_runs


def _as_forked(spec: SweepSpec) -> set[str]:
    """Return the arms that could begin with another one's runs, as the sweep says or might say."""
    plans = [spec] if spec.fork else [replace(spec, fork=True)]
    if not spec.fork and "sham_cleanup" in spec.arms:
        cleaning = [name for name, arm in spec.arms.items() if arm.policy.has_cleanup]
        named = {name: "sham_cleanup" for name in cleaning if name != "sham_cleanup"}
        plans.append(replace(spec, fork=True, fork_from={**spec.fork_from, **named}))
    found: set[str] = set()
    for plan in plans:
        refused = {problem.field.rpartition(".")[2] for problem in fork_problems(plan)}
        found |= {n for n in plan.arms if plan.fork_source(n) is not None and n not in refused}
    return found


def _n_with_all_seeds(spec: SweepSpec, runs: Sequence[PlannedRun]) -> int:
    """Return how many runs there would be if every instance had all seeds."""
    instances = {(run.model, run.agent, run.arm, run.instance_id) for run in runs}
    return sum(len(spec.seeds_of(arm)) for _, _, arm, _ in instances)
