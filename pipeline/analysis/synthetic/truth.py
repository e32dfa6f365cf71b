"""What a synthetic sweep is made of, and the true effects that analysis should find in it.

Effects are exact by construction. A run's tokens are its instance's length, times noise with mean
one that does not know the arm, times the arm's ratio; so the ratio of expected sums is that ratio.
A solve effect is a shift of log odds found so that the mean over the drawn instances is the
difference asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from pipeline.analysis.arrays import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTruth:
    """An arm's true effects against the reference, and how its runs look."""

    policy: str = "full_history"
    """Kind of the policy, for the lock."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of the policy, for the lock."""
    tokens: float = 1.0
    """Ratio of expected total input tokens, cleanup calls included."""
    steps: float = 1.0
    """Ratio of expected steps."""
    solve: float = 0.0
    """Difference in expected solve rate, as a share."""
    cleanups: int = 0
    """Cleanup calls a run, at the ends of plan steps."""
    prunes: bool = False
    refetch: float = 0.06
    """Share of steps that read something again."""


FOUNDING_ARMS: Mapping[str, ArmTruth] = {
    "full_history": ArmTruth(),
    "plan_prune": ArmTruth(
        policy="plan_prune", tokens=0.72, steps=0.97, cleanups=4, prunes=True, refetch=0.10
    ),
    "sham_cleanup": ArmTruth(
        policy="plan_prune", parameters={"apply": False}, tokens=1.07, cleanups=4
    ),
    "observation_mask": ArmTruth(
        policy="observation_mask", tokens=0.62, steps=1.05, solve=-0.02, prunes=True, refetch=0.15
    ),
}
"""Four arms with effects of the size that is reported in the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticSweep:
    """A sweep to make up."""

    n_instances: int
    seeds: tuple[int, ...] = (0, 1, 2)
    models: tuple[str, ...] = ("synthetic",)
    agents: tuple[str, ...] = ("synthetic",)
    arms: Mapping[str, ArmTruth] = field(default_factory=lambda: dict(FOUNDING_ARMS))
    reference: str = "full_history"
    mean_steps: float = 75.0
    solve_rate: float = 0.55
    """Of the reference."""
    first_prompt_tokens: int = 2_000
    tokens_per_step: float = 420.0
    """By which the reference's context grows."""
    noise: float = 0.30
    """Standard deviation of a run's log length around its instance's."""
    step_limit: int = 250
    seed: int = 0

    @property
    def n_runs(self) -> int:
        """Runs that the sweep plans."""
        return (
            self.n_instances
            * len(self.seeds)
            * len(self.models)
            * len(self.agents)
            * len(self.arms)
        )


def sized(
    n_runs: int, *, arms: Mapping[str, ArmTruth] = FOUNDING_ARMS, seed: int = 0
) -> SyntheticSweep:
    """Return a sweep of about `n_runs` runs: up to 500 instances, 3 seeds, then more models."""
    cell_runs = max(n_runs // len(arms), 1)
    n_seeds = 3 if cell_runs >= 30 else 1
    n_models = max(1, round(cell_runs / (500 * n_seeds)))
    return SyntheticSweep(
        n_instances=max(1, round(cell_runs / n_seeds / n_models)),
        seeds=tuple(range(n_seeds)),
        models=tuple(f"synthetic-{i + 1}" for i in range(n_models)),
        arms=dict(arms),
        seed=seed,
    )


def with_effects(
    sweep: SyntheticSweep, effects: Mapping[str, Mapping[str, float]]
) -> SyntheticSweep:
    """Return `sweep` with some arms' true effects changed.

    Args:
        sweep: the sweep.
        effects: arm to effect (`tokens`, `steps`, `solve`, `refetch`) to value.

    Raises:
        ValueError: an unknown arm or effect, with those known.
    """
    arms = dict(sweep.arms)
    known = ("tokens", "steps", "solve", "refetch")
    for arm, changes in effects.items():
        if arm not in arms:
            raise ValueError(f"no arm {arm!r} in the synthetic sweep; known: {', '.join(arms)}")
        if unknown := set(changes) - set(known):
            raise ValueError(f"no effect {sorted(unknown)[0]!r}; known: {', '.join(known)}")
        arms[arm] = replace(arms[arm], **changes)  # type: ignore[arg-type]
    return replace(sweep, arms=arms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Instances:
    """The made-up benchmark: how hard and how long each task is."""

    ids: tuple[str, ...]
    repos: tuple[str, ...]
    solve_chance: Mapping[str, FloatArray]
    """Arm to each instance's chance to be solved."""
    length: FloatArray
    """Each instance's steps, relative to the mean."""


def drawn_instances(sweep: SyntheticSweep, rng: np.random.Generator) -> Instances:
    """Return the instances of `sweep`, with every arm's chance to solve each of them."""
    n = sweep.n_instances
    repos = [f"repo{i:02d}/project" for i in range(1, 13)]
    # Repositories are as unequal as in SWE-bench Verified, where one holds half of the tasks.
    share = 1 / np.arange(1, 13) ** 1.3
    repo = rng.choice(12, size=n, p=share / share.sum())
    odds = rng.normal(0, 2.6, size=n) + 0.3 * rng.normal(size=12)[repo]
    odds = odds + _shift(expit(odds), sweep.solve_rate - float(expit(odds).mean()))
    base = expit(odds)
    chances = {
        name: expit(odds + _shift(base, arm.solve)) if arm.solve else base
        for name, arm in sweep.arms.items()
    }
    # What is hard takes longer: unsolved runs are about half again as long.
    length = rng.lognormal(-0.08, 0.4, size=n) * (1.3 - 0.5 * base)
    return Instances(
        ids=tuple(f"{repos[r].replace('/', '__')}-{1000 + i}" for i, r in enumerate(repo)),
        repos=tuple(repos[r] for r in repo),
        solve_chance=chances,
        length=length / length.mean(),
    )


def _shift(chances: FloatArray, difference: float) -> float:
    """Return the shift in log odds that moves the mean chance by `difference`."""
    odds = logit(np.clip(chances, 1e-9, 1 - 1e-9))
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(expit(odds + middle).mean() - chances.mean()) < difference:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def true_effects(sweep: SyntheticSweep, instances: Instances) -> dict[str, dict[str, float]]:
    """Return what analysis should find, by arm against the reference."""
    base = sweep.arms[sweep.reference]
    rates = {name: float(instances.solve_chance[name].mean()) for name in sweep.arms}
    return {
        name: {
            "solve_rate": rates[name],
            "solve_difference": rates[name] - rates[sweep.reference],
            "input_token_ratio": arm.tokens / base.tokens,
            "step_ratio": arm.steps / base.steps,
        }
        for name, arm in sweep.arms.items()
    }
