"""The power of a plan before it begins: what is left of it where looks are planned.

In the normal approximation, which the looks' boundaries are made for; `power` has the exact power
without looks, for one seed.
"""

from math import sqrt

from scipy.special import ndtr

from pipeline.analysis.looks import boundaries, power
from pipeline.analysis.rate_difference import Z
from pipeline.spec.analysis import AnalysisPlan

DISCORDANCES = (0.05, 0.10, 0.20)


def power_text(plan: AnalysisPlan, *, n_instances: int) -> str:
    """Return the chance to show "not worse" were the arms equal, with the looks and without.

    Args:
        plan: with margin and looks.
        n_instances: instances of a cell, each a pair on one seed.
    """
    drifts = [plan.margin * sqrt(n_instances / share) for share in DISCORDANCES]
    pairs = ", ".join(f"{share:.0%}" for share in DISCORDANCES)
    points = f"{100 * plan.margin:g} points"
    text = (
        f'power to show "not worse" by {points}, were the arms equal, where {pairs} of '
        f"{n_instances} pairs differ (one seed): " + _listed([float(ndtr(d - Z)) for d in drifts])
    )
    if not plan.looks:
        return text
    limits = boundaries(plan.looks, spending=plan.spending)
    return f"{text}; with the looks " + _listed(
        [power(plan.looks, limits, drift=d) for d in drifts]
    )


def _listed(chances: list[float]) -> str:
    return ", ".join(f"{chance:.0%}" for chance in chances)
