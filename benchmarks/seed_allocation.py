"""What share of the runs gives the same standard error where seeds go by a difficulty prior.

    python benchmarks/seed_allocation.py [--instances 500] [--seeds 3] [--repeats 20]

Against `--seeds` seeds for every instance. The standard error is that of the mean over these
instances (how a set of instances is solved); between instances nothing is saved. The prior is the
true rate, or a pilot of so many runs of each instance, (solved + 1/2) / (runs + 1). A pilot's own
runs are not counted: they are worth it where they are there already.
"""

import argparse

import numpy as np

from pipeline.spec.seed_allocation import allocated_seeds

POPULATIONS = {
    "nearly all settled": (0.1, 0.1),
    "half settled": (0.3, 0.3),
    "rates anywhere": (1.0, 1.0),
}
"""Beta distributions of the instances' solve rates."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    print("solve rates          prior           share of the runs")
    for population, shape in POPULATIONS.items():
        for prior in ("the true rate", "8 runs", "4 runs", "1 run"):
            shares = [
                share(np.random.default_rng(seed), shape, prior, args.instances, args.seeds)
                for seed in range(args.repeats)
            ]
            print(f"{population:20} {prior:15} {np.mean(shares):6.2f}")


def share(
    rng: np.random.Generator, shape: tuple[float, float], prior: str, n: int, seeds: int
) -> float:
    """Return the smallest share of the runs with a variance not above that of equal seeds."""
    rates = rng.beta(*shape, size=n)
    truth = rates * (1 - rates)
    if prior == "the true rate":
        known = rates
    else:
        runs = int(prior.split()[0])
        known = (rng.binomial(runs, rates) + 0.5) / (runs + 1)
    names = [f"i{i:04d}" for i in range(n)]
    prior_of = dict(zip(names, known.tolist(), strict=True))
    wanted = truth.sum() / seeds
    for mean in np.arange(1.0, seeds + 0.01, 0.02):
        given = allocated_seeds(prior_of, mean=float(mean), most=4 * seeds)
        if (truth / np.array([given[name] for name in names])).sum() <= wanted:
            return float(mean) / seeds
    return 1.0


if __name__ == "__main__":
    main()
