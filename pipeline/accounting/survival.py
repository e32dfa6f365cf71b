"""The mean number of calls that a run will still make, from pilot runs (Kaplan-Meier).

Runs that ended at a cap are censored: they would have continued for an unknown time.
"""

from collections.abc import Sequence


def survival_curve(calls: Sequence[int], capped: Sequence[bool]) -> list[tuple[int, float]]:
    """Return the numbers of calls at which the share of unfinished runs falls, with that share.

    Raises:
        ValueError: the two lists differ in length.
    """
    ends = list(zip(calls, capped, strict=True))
    curve: list[tuple[int, float]] = []
    share = 1.0
    for time in sorted({t for t, was_capped in ends if not was_capped}):
        at_risk = sum(t >= time for t, _ in ends)
        ended = sum(t == time and not was_capped for t, was_capped in ends)
        share *= 1 - ended / at_risk
        curve.append((time, share))
    return curve


def mean_calls_to_come(
    calls: Sequence[int], capped: Sequence[bool], *, so_far: int, horizon: int | None = None
) -> float:
    """Return the mean number of calls after `so_far`, given that the run has made these.

    Restricted to the longest pilot run, capped or not, and to `horizon` more calls where given: the
    next unavoidable rewrite of the context. 0 beyond the longest pilot run.

    Args:
        calls: of each pilot run.
        capped: whether that run ended at a cap.
        so_far: calls of this run.
        horizon: calls until everything is rewritten anyway.
    """
    end = max(calls, default=0)
    if horizon is not None:
        end = min(end, so_far + horizon)
    curve = survival_curve(calls, capped)
    alive = next((s for t, s in reversed(curve) if t <= so_far), 1.0)
    if alive <= 0.0 or end <= so_far:
        return 0.0
    # Area under the survival curve from here to the end, a step function between its times.
    area, place, share = 0.0, so_far, alive
    for time, lower in curve:
        if so_far < time < end:
            area += share * (time - place)
            place, share = time, lower
    return (area + share * (end - place)) / alive
