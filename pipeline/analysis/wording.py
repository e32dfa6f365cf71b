"""Numbers and findings in words, the same in the terminal, in tables and in the report.

A sentence here never claims more than its interval: "same" needs a claim of sameness, "cheaper" a
ratio surely below 1, and what is unknown says so.
"""

from collections.abc import Sequence
from math import isnan

from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.contrasts import Contrast, SolveRate
from pipeline.analysis.figures.style import evidence_word
from pipeline.analysis.replication import SeedNoise

UNKNOWN = "-"


def percent(share: float, *, digits: int = 1) -> str:
    """Return a share as a percentage; a dash when unknown."""
    return UNKNOWN if isnan(share) else f"{100 * share:.{digits}f}%"


def solve_difference(solve: SolveRate) -> str:
    """Return the difference in solve rate in points, with the interval that may be trusted.

    That is Tango's for one seed or where few instances differ: a bootstrap of no differences would
    print [0, 0]. Where it rests on one seed of several the difference is that seed's too, and a
    dagger says so.
    """
    value = solve.difference.value
    if solve.rests_on_one_seed_of_several:
        value = solve.sameness.difference
    low, high = 100 * solve.sameness.low, 100 * solve.sameness.high
    mark = "\N{DAGGER}" if solve.rests_on_one_seed_of_several else ""
    return f"{100 * value:+.1f} [{low:+.1f}, {high:+.1f}]{mark}"


DAGGER_NOTE = (
    "\N{DAGGER} fewer than 10 instances differ: difference and interval (Tango's) are those of "
    "the one seed named in the analysis plan; rates are over all seeds"
)


def ratio(estimate: Estimate) -> str:
    """Return a ratio with its interval."""
    if isnan(estimate.value):
        return UNKNOWN
    if isnan(estimate.low):
        return f"{estimate.value:.2f} [no interval]"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


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
    """Return one plain sentence about an arm: its solve rate, its tokens, and how sure that is.

    `caveats` says once what several of these would repeat.
    """
    parts = [f"{contrast.arm}: {_tokens_words(contrast.tokens)}"]
    if contrast.solve is None:
        parts.append("solve rate unknown, since nothing is graded")
    else:
        parts.append(f"solve rate {_solve_words(contrast)}")
    sentence = "; ".join(parts)
    if contrast.is_cheaper_at_same_rate:
        sentence += ". Cheaper in input tokens at a solve rate that is not worse"
    return sentence + ("." if contrast.is_planned else " (exploratory).")


def _tokens_words(tokens: Estimate) -> str:
    if isnan(tokens.value):
        return "input tokens cannot be compared"
    change = f"{abs(1 - tokens.value) * 100:.0f}% {'fewer' if tokens.value < 1 else 'more'}"
    if isnan(tokens.low):
        return f"{change} input tokens on one task, which says nothing about others"
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
    return (
        f"A/A, {reference} against itself between seeds: {percent(noise.discordance)} of tasks "
        f"discordant, token ratio {noise.token_ratio_low:.2f} to {noise.token_ratio_high:.2f}."
    )
