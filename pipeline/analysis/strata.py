"""Where a saving comes from: fewer calls or shorter prompts, and on which tasks.

log(token ratio) = log(ratio of calls) + log(ratio of mean prompts). Savings on the tasks that both
arms solve are a selected subset, so they never stand alone: all tasks come first, then the strata,
each with its n.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import BoolArray, FloatArray
from pipeline.analysis.bootstrap import Estimate, ratios_of_sums, seed_means
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import ArmOutcomes

STRATA = ("all tasks", "both solved", "only the arm", "only the reference", "neither")


@dataclass(frozen=True, kw_only=True, slots=True)
class Saving:
    """The saving on one stratum of pairs; a pair is one instance on one seed that both arms ran."""

    stratum: str
    n_pairs: int
    n_instances: int
    tokens: Estimate
    """Ratio of input tokens; its interval resamples instances."""
    calls_ratio: float
    mean_prompt_ratio: float


def savings(control: ArmOutcomes, treatment: ArmOutcomes, draws: Draws) -> list[Saving]:
    """Return the saving of `treatment` in every stratum, all tasks first.

    Without grades there is only the first stratum.
    """
    shared = [s for s in control.seeds if s in treatment.seeds]
    if not shared:
        return []
    before = [control.seeds.index(s) for s in shared]
    after = [treatment.seeds.index(s) for s in shared]
    pairs = control.done[:, before] & treatment.done[:, after]
    old, new = control.resolved[:, before], treatment.resolved[:, after]
    known = pairs & ~np.isnan(old) & ~np.isnan(new)
    strata = {
        "all tasks": pairs,
        "both solved": known & (old == 1) & (new == 1),
        "only the arm": known & (old == 0) & (new == 1),
        "only the reference": known & (old == 1) & (new == 0),
        "neither": known & (old == 0) & (new == 0),
    }
    return [
        _saving(name, mask, _columns(control, before), _columns(treatment, after), draws)
        for name, mask in strata.items()
        if name == "all tasks" or known.any()
    ]


def _columns(arm: ArmOutcomes, seeds: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    return arm.metrics["input_tokens"][:, seeds], arm.metrics["n_calls"][:, seeds]


def _saving(
    stratum: str,
    mask: BoolArray,
    control: tuple[FloatArray, FloatArray],
    treatment: tuple[FloatArray, FloatArray],
    draws: Draws,
) -> Saving:
    instances = mask.any(axis=1)

    def sums(values: FloatArray) -> FloatArray:
        total: FloatArray = np.where(mask, values, 0.0).sum(axis=1)[instances]
        return total

    counts = draws.of(int(instances.sum()))
    tokens = ratios_of_sums(sums(control[0]), sums(treatment[0])[:, None], counts)[0]
    calls_before, calls_after = float(sums(control[1]).sum()), float(sums(treatment[1]).sum())
    calls = calls_after / calls_before if calls_before > 0 else float("nan")
    return Saving(
        stratum=stratum,
        n_pairs=int(mask.sum()),
        n_instances=int(instances.sum()),
        tokens=tokens,
        calls_ratio=calls,
        mean_prompt_ratio=tokens.value / calls if calls > 0 else float("nan"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthBand:
    """The saving among instances whose baseline was so long, on a seed not used for the saving."""

    band: str
    n_instances: int
    tokens: Estimate


def by_baseline_length(
    control: ArmOutcomes, treatment: ArmOutcomes, draws: Draws
) -> list[LengthBand]:
    """Return the saving in thirds of baseline length; empty without a seed to spare.

    The length comes from one seed of the reference, which *neither* arm of the comparison uses:
    sorting by the very runs that are compared would find savings in noise alone, and dropping them
    in one arm only leaves the noise that the arms share. Other seeds whose runs are the same as
    those go with them.
    """
    spare = _spare_seed(control, treatment)
    if spare is None:
        return []
    length = control.metrics["n_steps"][:, control.seeds.index(spare)]
    dropped = _repeats_of(control, spare)
    before = _tokens_without(control, dropped)
    after = _tokens_without(treatment, dropped)
    usable = ~np.isnan(length) & ~np.isnan(before) & ~np.isnan(after)
    if usable.sum() < 6:
        return []
    edges = np.quantile(length[usable], [1 / 3, 2 / 3])
    band = np.digitize(length, edges)
    names = (f"up to {edges[0]:.0f} steps", f"to {edges[1]:.0f}", f"over {edges[1]:.0f}")
    found = []
    for number, name in enumerate(names):
        mask = usable & (band == number)
        counts = draws.of(int(mask.sum()))
        tokens = ratios_of_sums(before[mask], after[mask][:, None], counts)[0]
        found.append(LengthBand(band=name, n_instances=int(mask.sum()), tokens=tokens))
    return found


def _spare_seed(control: ArmOutcomes, treatment: ArmOutcomes) -> int | None:
    """Return the reference's seed that costs the comparison least; None with a single seed."""
    if len(control.seeds) < 2:
        return None
    alone = [seed for seed in control.seeds if seed not in treatment.seeds]
    return min(alone or control.seeds)


def _repeats_of(control: ArmOutcomes, seed: int) -> set[int]:
    """Return `seed` and the seeds of the reference whose runs are all the same as its runs."""
    at = control.seeds.index(seed)
    return {
        other
        for place, other in enumerate(control.seeds)
        if all(
            np.array_equal(values[:, place], values[:, at], equal_nan=True)
            for values in (control.metrics["n_steps"], control.metrics["input_tokens"])
        )
    }


def _tokens_without(arm: ArmOutcomes, seeds: Collection[int]) -> FloatArray:
    kept = [place for place, seed in enumerate(arm.seeds) if seed not in seeds]
    return seed_means(arm.metrics["input_tokens"][:, kept])
