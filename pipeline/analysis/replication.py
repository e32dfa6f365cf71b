"""What seeds of one arm say: its noise against itself, and pass@k / pass^k.

The A/A figures stand beside every effect: an effect smaller than what the baseline does to itself
between two seeds is noise until an interval says otherwise.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from pipeline.analysis.arrays import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedNoise:
    """How far an arm's seeds differ from each other. NaN with a single seed."""

    n_seed_pairs: int
    discordance: float
    """Share of instances that one seed solved and another did not, mean over seed pairs."""
    token_ratio_low: float
    """Smallest ratio of total input tokens between two seeds (the larger seed below)."""
    token_ratio_high: float
    token_log_sd: float
    """Spread of one run's log tokens around its instance's mean."""
    step_log_sd: float


def seed_noise(resolved: FloatArray, tokens: FloatArray, steps: FloatArray) -> SeedNoise:
    """Return the noise between seeds of one arm.

    Args:
        resolved: 0 or 1, shape (instances, seeds), NaN for a seed not run.
        tokens: input tokens, same shape.
        steps: steps, same shape.
    """
    discordances: list[float] = []
    ratios: list[float] = []
    for first, second in combinations(range(tokens.shape[1]), 2):
        both = ~np.isnan(tokens[:, first]) & ~np.isnan(tokens[:, second])
        if both.any() and (below := tokens[both, first].sum()) > 0:
            ratio = float(tokens[both, second].sum() / below)
            ratios += [ratio, 1 / ratio] if ratio > 0 else []
        graded = ~np.isnan(resolved[:, first]) & ~np.isnan(resolved[:, second])
        if graded.any():
            gap = resolved[graded, first] != resolved[graded, second]
            discordances.append(float(gap.mean()))
    nan = float("nan")
    return SeedNoise(
        n_seed_pairs=tokens.shape[1] * (tokens.shape[1] - 1) // 2,
        discordance=float(np.mean(discordances)) if discordances else nan,
        token_ratio_low=min(ratios, default=nan),
        token_ratio_high=max(ratios, default=nan),
        token_log_sd=_within_log_sd(tokens),
        step_log_sd=_within_log_sd(steps),
    )


def _within_log_sd(values: FloatArray) -> float:
    """Return the pooled standard deviation of log values within instances; NaN if undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    logs = np.where(np.isfinite(logs), logs, np.nan)
    present = (~np.isnan(logs)).sum(axis=1)
    repeated = logs[present >= 2]
    if not len(repeated):
        return float("nan")
    gaps = repeated - np.nanmean(repeated, axis=1, keepdims=True)
    freedom = int((present[present >= 2] - 1).sum())
    return float(np.sqrt(np.nansum(gaps**2) / freedom))


def pass_at_k(n_runs: int, n_solved: int, k: int) -> float:
    """Return the chance that at least one of k runs solves, unbiased; NaN with fewer runs.

    Source: Chen et al. (2021), arXiv 2107.03374, equation 1.
    """
    if n_runs < k:
        return float("nan")
    return 1 - comb(n_runs - n_solved, k) / comb(n_runs, k)


def pass_hat_k(n_runs: int, n_solved: int, k: int) -> float:
    """Return the chance that all of k runs solve, unbiased; NaN with fewer runs.

    Source: Yao et al. (2024), arXiv 2406.12045, pass^k.
    """
    if n_runs < k:
        return float("nan")
    return comb(n_solved, k) / comb(n_runs, k)
