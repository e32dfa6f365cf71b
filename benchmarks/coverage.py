"""How often 95% intervals hold the truth and 5% tests reject a true null, by number of instances.

    python benchmarks/coverage.py [--repeats 4000] [--instances 12 25 100 500]

Ratios of sums over instances, three shapes: `lognormal` (instances and runs like real ones),
`heavy` (a few instances hold most of the tokens) and `demo` (pairs drawn from the 12 of the demo:
full history against plan pruning, with the noise of one run). The plain percentile interval stands
beside the expanded one that analysis prints. Rows `rate` are differences in solve rate, two seeds
an arm, with the interval that analysis prints (`rate_difference`).
"""

import argparse
from collections.abc import Callable

import numpy as np

from pipeline.analysis.bootstrap import ratios_of_sums, resample_counts
from pipeline.analysis.rate_difference import rate_difference

Drawn = tuple[np.ndarray, np.ndarray]
"""Control and treatment, shape (instances, repeats); their true ratio is `TRUTH`."""

TRUTH = 0.8
BATCH = 200
"""Sweeps that share their resamples."""

DEMO_KTOKENS = (
    (446, 581, 760, 488, 516, 430, 759, 634, 633, 471, 240, 417),
    (363, 474, 693, 446, 438, 345, 618, 495, 489, 397, 194, 335),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--instances", type=int, nargs="+", default=[12, 25, 100, 500])
    args = parser.parse_args()
    print(
        "shape      instances  plain covers  expanded covers  p <= 0.05 under the null", flush=True
    )
    for shape, drawn in SHAPES.items():
        for n in args.instances:
            plain, expanded, rejected = ratio_shares(drawn, n, args.repeats)
            print(
                f"{shape:9}  {n:9}  {plain:12.1%}  {expanded:15.1%}  {rejected:12.1%}", flush=True
            )
    for n in args.instances:
        covered = rate_share(n, args.repeats // 2)
        print(f"rate       {n:9}  {'':12}  {covered:15.1%}", flush=True)


def draws_for(n: int) -> int:
    """Return the resamples of an interval: few instances have their ends far out."""
    return 10_000 if n < 50 else 2_000


def lognormal(n: int, repeats: int, rng: np.random.Generator) -> Drawn:
    return _with_noise(rng.lognormal(0, 0.5, (n, repeats)), 0.3, rng)


def heavy(n: int, repeats: int, rng: np.random.Generator) -> Drawn:
    return _with_noise(rng.lognormal(0, 1.0, (n, repeats)), 0.5, rng)


def demo(n: int, repeats: int, rng: np.random.Generator) -> Drawn:
    control, treatment = np.array(DEMO_KTOKENS, dtype=float)
    treatment *= TRUTH * control.sum() / treatment.sum()
    drawn = rng.integers(0, len(control), (n, repeats))
    noise = rng.lognormal(-0.005, 0.1, (2, n, repeats))
    return control[drawn] * noise[0], treatment[drawn] * noise[1]


SHAPES: dict[str, Callable[[int, int, np.random.Generator], Drawn]] = {
    "lognormal": lognormal,
    "heavy": heavy,
    "demo": demo,
}


def _with_noise(instance: np.ndarray, sigma: float, rng: np.random.Generator) -> Drawn:
    noise = rng.lognormal(-(sigma**2) / 2, sigma, (2, *instance.shape))
    return instance * noise[0], TRUTH * instance * noise[1]


def ratio_shares(
    drawn: Callable[[int, int, np.random.Generator], Drawn], n: int, repeats: int
) -> tuple[float, float, float]:
    """Return the coverage of both intervals, and how often p is at most 0.05 without an effect."""
    rng = np.random.default_rng([n, repeats])
    hits = np.zeros(3)
    for _ in range(repeats // BATCH):
        counts = resample_counts(n, draws=draws_for(n), rng=rng)
        control, treatment = drawn(n, BATCH, rng)
        resampled = (counts @ treatment) / (counts @ control)
        low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
        hits[0] += ((low <= TRUTH) & (high >= TRUTH)).sum()
        for column in range(BATCH):
            one = control[:, column], treatment[:, [column]]
            found = ratios_of_sums(*one, counts)[0]
            hits[1] += found.low <= TRUTH <= found.high
            without_effect = ratios_of_sums(one[0], one[1] / TRUTH, counts)[0]
            hits[2] += without_effect.p_value <= 0.05
    plain, expanded, rejected = hits / (repeats // BATCH * BATCH)
    return float(plain), float(expanded), float(rejected)


def rate_share(n: int, repeats: int) -> float:
    """Return how often the interval of a difference in solve rate holds it: 4 points, two seeds."""
    rng = np.random.default_rng([n, repeats])
    counts = resample_counts(n, draws=draws_for(n), rng=rng)
    held = 0
    for _ in range(repeats):
        chance = rng.beta(0.5, 0.5, n)
        better = np.clip(chance + 0.04, 0, 1)
        found = rate_difference(rng.binomial(2, chance) / 2, rng.binomial(2, better) / 2, counts)
        # The truth is over all instances that there could be: the mean of min(0.04, 1 - chance).
        held += found.low <= RATE_TRUTH <= found.high
    return held / repeats


RATE_TRUTH = float(
    np.clip(np.random.default_rng(0).beta(0.5, 0.5, 2_000_000) + 0.04, 0, 1).mean() - 0.5
)

if __name__ == "__main__":
    main()
