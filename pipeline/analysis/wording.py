"""Numbers and findings in words, the same in the terminal, in tables and in the report.

A sentence here never claims more than its interval: "same" needs a claim of sameness, "cheaper" a
ratio surely below 1, and what is unknown says so.
"""

from collections.abc import Sequence
from math import isnan

from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.contrasts import Contrast, SolveRate
from pipeline.analysis.figures.style import evidence_word
from pipeline.analysis.outcomes import Group
from pipeline.analysis.prior_regression import AdjustedDifference
from pipeline.analysis.rate_difference import RateDifference
from pipeline.analysis.replication import SeedNoise
from pipeline.plural import plural

UNKNOWN = "-"


def percent(share: float, *, digits: int = 1) -> str:
    """Return a share as a percentage; a dash when unknown."""
    return UNKNOWN if isnan(share) else f"{100 * share:.{digits}f}%"


def solve_difference(solve: SolveRate) -> str:
    """Return the difference of the two solve rates in points, over all seeds, with its interval."""
    return points(solve.difference)


def points(found: RateDifference | Estimate | AdjustedDifference) -> str:
    """Return a difference of shares in points, with its interval."""
    return f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def ratio(estimate: Estimate) -> str:
    """Return a ratio with its interval."""
    if isnan(estimate.value):
        return UNKNOWN
    if isnan(estimate.low):
        return f"{estimate.value:.2f} [no interval]"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def signed(estimate: Estimate) -> str:
    """Return a difference with its interval."""
    if isnan(estimate.value):
        return UNKNOWN
    if isnan(estimate.low):
        return f"{estimate.value:+.2f} [no interval]"
    return f"{estimate.value:+.2f} [{estimate.low:+.2f}, {estimate.high:+.2f}]"


def p_value(p: float) -> str:
    """Return a p value as people write it."""
    if isnan(p):
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def evidence_note(evidence: str) -> str:
    """Return what goes into every caption: nothing for live runs, else what the numbers are."""
    word = evidence_word(evidence)
    return f" ({word})" if word else ""


def verdict(contrast: Contrast) -> str:
    """Return one plain sentence about an arm: tokens, cost, solve rate, and how sure that is.

    `caveats` says once what several of these would repeat.
    """
    parts = [f"{contrast.arm}: {_tokens_words(contrast.tokens)}"]
    if (cost := contrast.caching_cost) is not None and not isnan(cost.ratio.value):
        parts.append(f"cost ratio {ratio(cost.ratio)} with {cost.prices} prices ({cost.view} view)")
    if contrast.solve is None:
        parts.append("solve rate unknown, since no pair has two grades")
    else:
        parts.append(f"solve rate {_solve_words(contrast)}")
    sentence = "; ".join(parts)
    if contrast.solve is not None and contrast.solve.sameness.is_noninferior:
        sentence += f". Cheaper at a solve rate that is not worse: {cheaper_by_list(contrast)}"
    return sentence + ("." if contrast.is_planned else " (exploratory).")


def _tokens_words(tokens: Estimate) -> str:
    if isnan(tokens.value):
        return "input tokens cannot be compared"
    share = f"{abs(1 - tokens.value) * 100:.0f}%"
    change = f"{share} {'fewer' if tokens.value < 1 else 'more'}"
    if share == "0%":
        change = "as many" if tokens.value == 1 else "about as many"
    if isnan(tokens.low):
        tasks = plural(tokens.n_instances, "task")
        return f"{change} input tokens on {tasks}, too few to say anything about others"
    ends = f"ratio {ratio(tokens)}"
    if tokens.excludes_null:
        return f"{change} input tokens ({ends})"
    return f"no clear change in input tokens ({ends})"


def _solve_words(contrast: Contrast) -> str:
    solve = contrast.solve
    assert solve is not None
    p = solve.test.p_value if isnan(solve.holm_p) else solve.holm_p
    ends = f"{solve_difference(solve)} points"
    same = solve.sameness
    if p <= 0.05:
        word = "higher" if solve.difference.value > 0 else "lower"
        found = f"{word} by {ends}"
        return found if same.is_inconclusive else f"{found}, {same.sentence}"
    if same.is_inconclusive:
        return f"{ends}: neither a difference nor sameness is shown"
    return f"{ends}: no difference shown, {same.sentence}"


def seeds_words(group: Group) -> str:
    """Return how many seeds its arms have, as `2 seeds` or `1 or 2 seeds`."""
    *others, most = sorted({len(arm.seeds) for arm in group.arms.values()})
    return " or ".join([*map(str, others), plural(most, "seed")])


def cost_note(contrasts: Sequence[Contrast]) -> str:
    """Return what the column of cached costs is; empty where nothing is priced so."""
    costs = [c.caching_cost for c in contrasts if c.caching_cost is not None]
    if not costs:
        return ""
    return f"cost, cached: ratio with {costs[0].prices} prices, {costs[0].view} view of the cache"


def cheaper_by_list(contrast: Contrast) -> str:
    """Return, by price list, whether the arm is cheaper at a solve rate that is not worse."""
    words = [
        f"{cost.prices} prices {'yes' if cost.prices in contrast.cheaper_under else 'not shown'}"
        for cost in contrast.costs
    ]
    return ", ".join(words) or "unknown, since nothing is priced"


def caveats(contrasts: Sequence[Contrast]) -> list[str]:
    """Return what goes for several verdicts, once: which arms are not shown to be as good."""
    open_claims = [c for c in contrasts if c.solve and c.solve.sameness.is_inconclusive]
    if not open_claims:
        return []
    assert open_claims[0].solve is not None
    names = ", ".join(c.arm for c in open_claims)
    return [f"{names}: {open_claims[0].solve.sameness.sentence}."]


def noise_sentence(reference: str, noise: SeedNoise) -> str:
    """Return what the reference does to itself between seeds (A/A), beside which effects stand."""
    if noise.n_seed_pairs == 0:
        return f"A/A: {reference} ran on one seed, so its noise against itself is unknown."
    discordant = "unknown" if isnan(noise.discordance) else percent(noise.discordance)
    between = f"{noise.token_ratio_low:.2f} to {noise.token_ratio_high:.2f}"
    return (
        f"A/A, {reference} against itself between seeds: {discordant} of tasks discordant, token "
        f"ratio {'unknown' if isnan(noise.token_ratio_low) else between}."
    )
