"""Where a saving comes from: fewer calls or shorter prompts, and on which tasks.

log(token ratio) = log(ratio of calls) + log(ratio of mean prompts). Savings on the tasks that both
arms solve are a selected subset, so they never stand alone: all tasks come first, then the strata,
each with its n.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import BoolArray, FloatArray
from pipeline.analysis.bootstrap import Estimate, ratios_of_sums
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
    """Return the saving in thirds of baseline length; empty with fewer than two baseline seeds.

    The length comes from the reference's first seed and the saving from its others: sorting by the
    very runs that are compared would find savings in noise alone.
    """
    if len(control.seeds) < 2:
        return []
    length = control.metrics["n_steps"][:, 0]
    rest = _mean_without_first(control.metrics["input_tokens"])
    after = treatment.mean_of("input_tokens")
    usable = ~np.isnan(length) & ~np.isnan(rest) & ~np.isnan(after)
    if usable.sum() < 6:
        return []
    edges = np.quantile(length[usable], [1 / 3, 2 / 3])
    band = np.digitize(length, edges)
    names = (f"up to {edges[0]:.0f} steps", f"to {edges[1]:.0f}", f"over {edges[1]:.0f}")
    found = []
    for number, name in enumerate(names):
        mask = usable & (band == number)
        counts = draws.of(int(mask.sum()))
        tokens = ratios_of_sums(rest[mask], after[mask][:, None], counts)[0]
        found.append(LengthBand(band=name, n_instances=int(mask.sum()), tokens=tokens))
    return found


def _mean_without_first(values: FloatArray) -> FloatArray:
    rest = values[:, 1:]
    known = ~np.isnan(rest)
    sums, counts = np.where(known, rest, 0.0).sum(axis=1), known.sum(axis=1)
    means: FloatArray = np.full(len(rest), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means
