"""What planned looks save, and how often they err, by the true difference in solve rate.

    python benchmarks/looks.py [--repeats 200] [--instances 500] [--seeds 3]

Five looks; an arm stops when it is shown to be not worse by the margin of 5 points, to be worse, or
when the first would hardly be shown any more. An instance is nearly never, sometimes or nearly
always solved, and two seeds of an arm agree with correlation 0.5. `runs` is the share of the
sweep's instances that were needed.
"""

import argparse
from collections import Counter
from typing import get_args

import numpy as np

from pipeline.analysis.decisions import Verdict, decisions
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.spec.analysis import AnalysisPlan, Spending

LOOKS = (0.2, 0.4, 0.6, 0.8, 1.0)
DIFFERENCES = (0.0, -0.02, -0.05, -0.08)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    stops = [v for v in get_args(Verdict) if v != "go on"]
    print("spending        difference   runs  " + "  ".join(f"{stop:>9}" for stop in stops))
    for spending in get_args(Spending):
        plan = AnalysisPlan(looks=LOOKS, spending=spending)
        for difference in DIFFERENCES:
            found = [
                decisions(made_group(difference, args.instances, args.seeds, seed), plan)[0]
                for seed in range(args.repeats)
            ]
            runs = np.mean([d.n_instances for d in found]) / args.instances
            ends = Counter(d.verdict for d in found)
            cells = "  ".join(f"{ends[stop] / args.repeats:9.1%}" for stop in stops)
            print(f"{spending:15} {100 * difference:+9.0f}  {runs:6.2f}  {cells}", flush=True)


def made_group(difference: float, n: int, seeds: int, seed: int) -> Group:
    """Return a sweep with this true difference in rate between two arms."""
    rng = np.random.default_rng(seed)
    chance = rng.choice([0.05, 0.5, 0.95], p=[0.35, 0.2, 0.45], size=n)[:, None]
    hurt = chance > 0.3
    other = chance + difference * hurt / hurt.mean()

    def runs(p: np.ndarray) -> np.ndarray:
        shared, fresh = rng.random((n, 1)) < p, rng.random((n, seeds)) < p
        return np.where(rng.random((n, seeds)) < 0.5**0.5, shared, fresh).astype(float)

    names = tuple(f"repo-{i:04d}" for i in range(n))
    arms = {"full_history": runs(chance), "pruned": runs(other)}
    return Group(
        benchmark="made up", model="none", agent="none", evidence="synthetic",
        instance_ids=names, repos=names,
        arms={name: _arm(name, resolved) for name, resolved in arms.items()},
    )  # fmt: skip


def _arm(name: str, resolved: np.ndarray) -> ArmOutcomes:
    done = np.ones(resolved.shape, dtype=bool)
    nothing = np.full(resolved.shape, None, dtype=object)
    return ArmOutcomes(
        arm=name, seeds=tuple(range(resolved.shape[1])), planned=done, done=done,
        resolved=resolved, resolved_or_limit=resolved, failure_class=nothing, run_id=nothing,
        metrics={},
    )  # fmt: skip


if __name__ == "__main__":
    main()
