"""Whether forked runs are as runs that make all calls by themselves, and what forking saves.

    python benchmarks/forks.py DIR [--seeds 28] [--unrepeatable 0.1] [--as-they-are]

Two sweeps of the built-in benchmark with the simulated agent, one forked and one fresh, on a server
that would not repeat a share of its answers, as real ones do not. DIR may hold them already;
--as-they-are runs nothing; of a sweep that was stopped the seeds that are complete count. Of each
arm:

- p: the chance of such a difference between the sweeps, in the mean and in the distribution
  (Kolmogorov's distance), were they alike. Runs change places within an instance, 2,000 times.
- width: the standard error of the paired difference to full_history, over as many seeds and within
  instances, in the forked sweep over that in the fresh one.
- calls, made: as if run, and as run.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.analysis.forks import fork_tallies
from pipeline.analysis.outcomes import ArmOutcomes, Group, groups_of
from pipeline.analysis.tables import open_tables

REFERENCE = "full_history"
ARMS = (
    *("~arms.plan_prune", "~arms.sham_cleanup", "~arms.no_plan"),
    *("+arm@arms.mask=observation_mask", "arms.mask.policy.keep_last_turns=5"),
    "+arm@arms.dedup=dedup",
)
OUTCOMES = ("solved", "input_tokens", "n_steps")
PERMUTATIONS = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=28)
    parser.add_argument("--unrepeatable", type=float, default=0.1)
    parser.add_argument("--as-they-are", action="store_true")
    args = parser.parse_args()
    groups = {}
    for name, fork in (("fresh", "false"), ("forked", "true")):
        results = args.folder / name
        if not args.as_they_are:
            made(results, f"fork={fork}", args.seeds, args.unrepeatable)
        with open_tables(results) as connection:
            (groups[name],) = groups_of(connection)
            tallies = fork_tallies(connection, groups[name])
    fresh, forked = groups["fresh"], groups["forked"]
    rng = np.random.default_rng(0)
    n_fresh, n_forked = map(complete_seeds, (fresh, forked))
    print(
        f"{len(forked.instance_ids)} instances, {len(forked.arms)} arms, {n_fresh} fresh and "
        f"{n_forked} forked seeds"
    )
    print("arm           outcome             fresh      forked  p, mean  p, distribution  width")
    for name, arm in forked.arms.items():
        for outcome in OUTCOMES:
            a = values(fresh.arms[name], outcome)[:, :n_fresh]
            b = values(arm, outcome)[:, :n_forked]
            tests = [p_value(a, b, of, rng) for of in (mean_gap, distance)]
            ratio = width(forked, name, outcome, n_forked) / width(fresh, name, outcome, n_fresh)
            shown = "" if name == REFERENCE else f"{ratio:5.2f}"
            print(
                f"{name:13} {outcome:13} {a.mean():10,.2f}  {b.mean():10,.2f}  {tests[0]:7.3f}"
                f"  {tests[1]:15.3f}  {shown}"
            )
    for t in tallies:
        print(
            f"{t.arm}: {t.n_calls:,} calls, {t.n_calls_made:,} made; {t.n_forked} of {t.n_runs} "
            f"runs forked, {t.n_never_acted} never acted, {t.n_differed} did something else again"
        )


def made(results: Path, fork: str, seeds: int, unrepeatable: float) -> None:
    words = [
        *("+sweep=demo", *ARMS, f"seeds=range(0,{seeds})", "analyze=false"),
        *(f"model.sim.unrepeatable={unrepeatable}", fork, f"results={results}"),
    ]
    subprocess.run([sys.executable, "-m", "pipeline.launch", *words], check=True)


def complete_seeds(group: Group) -> int:
    """Return how many seeds, from the first on, are graded on every instance in every arm."""
    graded = np.stack([~np.isnan(arm.resolved) for arm in group.arms.values()]).all(axis=(0, 1))
    return int(np.argmin(np.append(graded, False)))


def values(arm: ArmOutcomes, outcome: str) -> np.ndarray:
    return arm.resolved if outcome == "solved" else arm.metrics[outcome]


def mean_gap(a: np.ndarray, b: np.ndarray) -> float:
    return abs(float(a.mean() - b.mean()))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return Kolmogorov's distance of the seeds of an instance, summed over instances."""
    both = np.concatenate([a, b], axis=1)
    at = both[:, :, None]
    below = [(side[:, None, :] <= at).mean(axis=2) for side in (a, b)]
    return float(np.abs(below[0] - below[1]).max(axis=1).sum())


def p_value(
    a: np.ndarray,
    b: np.ndarray,
    of: Callable[[np.ndarray, np.ndarray], float],
    rng: np.random.Generator,
) -> float:
    seen, both = of(a, b), np.concatenate([a, b], axis=1)
    drawn = (rng.permuted(both, axis=1) for _ in range(PERMUTATIONS))
    as_far = sum(of(d[:, : a.shape[1]], d[:, a.shape[1] :]) >= seen - 1e-12 for d in drawn)
    return (as_far + 1) / (PERMUTATIONS + 1)


def width(group: Group, arm: str, outcome: str, n_seeds: int) -> float:
    """Return the standard error of a mean paired difference over one seed."""
    both = [values(group.arms[name], outcome)[:, :n_seeds] for name in (arm, REFERENCE)]
    gaps = both[0] - both[1]
    if not gaps.any():
        return float("nan")
    return float(np.sqrt(gaps.var(axis=1, ddof=1).sum()) / len(gaps))


if __name__ == "__main__":
    main()
