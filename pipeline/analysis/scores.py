"""Mean scores of arms, for benchmarks whose instances can be solved in part.

The primary outcome of such a benchmark is the score, 0 to 1, and not the share at 1: an instance's
seeds are averaged, and arms are compared on the instances with scores in both. Sign flips of whole
arms test "no difference" (Fisher, 1935); the interval is the bootstrap's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, mean_differences, seed_means
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import Group, shaped_by_arm
from pipeline.analysis.paired_tests import holm
from pipeline.spec.analysis import AnalysisPlan

N_FLIPS = 9_999
"""With the observed signs, so that the smallest p value is 1 in 10,000."""
N_SWEEPS = 400
"""Simulated for the power of "not worse"."""
TIE = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreContrast:
    """One arm's mean score against the reference's."""

    arm: str
    n_paired: int
    """Instances with a score from every planned run of both."""
    score: float
    reference_score: float
    difference: Estimate
    p_value: float
    holm_p: float
    margin: float
    """In units of the score."""
    power_not_worse: float
    """Chance that "not worse" is shown with so many instances, were the arms equal."""

    @property
    def is_not_worse(self) -> bool:
        """Whether the interval lies above the margin."""
        return self.difference.low > -self.margin


def score_contrasts(
    connection: duckdb.DuckDBPyConnection,
    group: Group,
    *,
    reference: str,
    plan: AnalysisPlan,
    draws: Draws,
) -> list[ScoreContrast]:
    """Return every arm against the reference; none where every grade is solved or not."""
    columns = connection.execute(
        "SELECT run_id, score FROM verdicts WHERE score IS NOT NULL ORDER BY run_id"
    ).fetchnumpy()
    values = np.asarray(columns["score"], dtype=np.float64)
    if reference not in group.arms or not ((values > 0) & (values < 1)).any():
        return []
    shaped = shaped_by_arm(group, columns["run_id"].tolist(), {"score": values})
    scores = {name: arrays["score"] for name, arrays in shaped.items()}
    found = [
        _contrast(group, name, reference, scores, plan, draws)
        for name in group.arms
        if name != reference
    ]
    found = [c for c in found if c.n_paired]
    corrected = holm([c.p_value for c in found])
    return [replace(c, holm_p=p) for c, p in zip(found, corrected, strict=True)]


def _contrast(
    group: Group,
    arm: str,
    reference: str,
    scores: dict[str, FloatArray],
    plan: AnalysisPlan,
    draws: Draws,
) -> ScoreContrast:
    paired = np.ones(len(group.instance_ids), dtype=bool)
    for name in (arm, reference):
        known = ~np.isnan(scores[name]) | ~group.arms[name].planned
        paired &= known.all(axis=1) & group.arms[name].planned.any(axis=1)
    old, new = (seed_means(scores[name][paired]) for name in (reference, arm))
    n = len(old)
    difference = mean_differences(old, new[:, None], draws.of(n))[0]
    return ScoreContrast(
        arm=arm,
        n_paired=n,
        score=float(new.mean()) if n else np.nan,
        reference_score=float(old.mean()) if n else np.nan,
        difference=difference,
        p_value=sign_flip_p(new - old, seed=plan.resampling_seed),
        holm_p=np.nan,
        margin=plan.margin,
        power_not_worse=power_not_worse(new - old, plan.margin, seed=plan.resampling_seed),
    )


def sign_flip_p(differences: FloatArray, *, seed: int) -> float:
    """Return the two-sided p value of random sign flips of per-instance differences.

    Args:
        differences: of seed means, one an instance; any real numbers.
        seed: of the flips.
    """
    moved = differences[np.abs(differences) > TIE]
    if not len(moved):
        return 1.0
    rng = np.random.default_rng(seed)
    signs = rng.integers(0, 2, size=(N_FLIPS, len(moved)), dtype=np.int8) * 2 - 1
    sums = np.abs(signs @ moved)
    reached = int((sums >= abs(float(moved.sum())) - TIE).sum())
    return (1 + reached) / (1 + N_FLIPS)


def power_not_worse(differences: FloatArray, margin: float, *, seed: int) -> float:
    """Return the chance that the lower 97.5% bound lies above `-margin`, were the means equal.

    By simulation: sweeps of as many instances are drawn from the centered differences, and each
    has a t interval.
    """
    from scipy.stats import t

    n = len(differences)
    if n < 2:
        return float("nan")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(differences - differences.mean(), size=(N_SWEEPS, n))
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(n)
    return float((drawn.mean(axis=1) - t.ppf(0.975, n - 1) * errors > -margin).mean())


def score_sentences(found: Sequence[ScoreContrast]) -> list[str]:
    """Return what may be said of the arms' scores; it is the primary outcome where there is one."""
    return [
        f"score: {c.arm} {c.score:.3f} against {c.reference_score:.3f}, difference "
        f"{c.difference.value:+.3f} [{c.difference.low:+.3f}, {c.difference.high:+.3f}], "
        f"p (Holm) {c.holm_p:.3f}, {c.n_paired} instances; "
        + (
            f"not worse by {c.margin:g}"
            if c.is_not_worse
            else f"not shown to be as good: the interval reaches past the margin of {c.margin:g}"
        )
        for c in found
    ]
