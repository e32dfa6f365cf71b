"""How often the solve-rate test rejects a true null, by how much the seeds of a run agree.

    python benchmarks/solve_rate_tests.py [--repeats 2000] [--instances 25 100]

An instance's chance to be solved is drawn from Beta(a, a) and is the same in both arms. A seed
repeats what its arm drew once for the instance with chance sqrt(correlation) and draws anew else,
so that two seeds of one arm have that correlation given the chance. At correlation 1 all seeds
agree, as at temperature 0. A test at 5% should reject at most 5 times in 100; the standard error of
a share of 5% over 2,000 repeats is 0.5%.
"""

import argparse
from itertools import product

import numpy as np

from pipeline.analysis.bootstrap import mean_differences, resample_counts, seed_means
from pipeline.analysis.paired_tests import solve_rate_test

SEEDS = ((2, 2), (3, 3), (5, 5), (5, 1))
"""Seeds of control and treatment."""
CORRELATIONS = (0.0, 0.5, 0.8, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--instances", type=int, nargs="+", default=[25, 100])
    parser.add_argument("--draws", type=int, default=2000, help="resamples of the bootstrap")
    args = parser.parse_args()
    print("share of true nulls rejected at 5%")
    print("instances  seeds   beta  " + "  ".join(f"corr {c:<4g}" for c in CORRELATIONS))
    for n, seeds, shape in product(args.instances, SEEDS, (1.0, 0.3)):
        shares = [
            rejected(n, seeds, shape, c, repeats=args.repeats, draws=args.draws)
            for c in CORRELATIONS
        ]
        cells = "  ".join(f"{100 * share:8.1f}%" for share in shares)
        print(f"{n:9}  {seeds[0]} v {seeds[1]}  {shape:5}  {cells}", flush=True)


def rejected(
    n: int, seeds: tuple[int, int], shape: float, correlation: float, *, repeats: int, draws: int
) -> float:
    """Return the share of `repeats` sweeps without an effect in which the test rejects at 5%."""
    rng = np.random.default_rng([n, *seeds, int(10 * shape), int(10 * correlation)])
    counts = resample_counts(n, draws=draws, rng=rng)
    found = 0
    for _ in range(repeats):
        chance = rng.beta(shape, shape, size=n)
        control, treatment = (drawn_runs(chance, k, correlation, rng) for k in seeds)
        p = float("nan")
        if seeds[0] != seeds[1]:
            after = seed_means(treatment)[:, None]
            p = mean_differences(seed_means(control), after, counts)[0].p_value
        found += solve_rate_test(control, treatment, bootstrap_p=p).p_value <= 0.05
    return found / repeats


def drawn_runs(
    chance: np.ndarray, n_seeds: int, correlation: float, rng: np.random.Generator
) -> np.ndarray:
    """Return resolved as 0 or 1, shape (instances, seeds), with seeds that agree by so much."""
    shape = (len(chance), n_seeds)
    shared = rng.random((len(chance), 1)) < chance[:, None]
    fresh = rng.random(shape) < chance[:, None]
    repeats_it = rng.random(shape) < np.sqrt(correlation)
    return np.where(repeats_it, shared, fresh).astype(float)


if __name__ == "__main__":
    main()
