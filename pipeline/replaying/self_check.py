"""Does replay agree with what was billed? The unedited history against the recorded cache reads.

A replayed price is as good as the replayed prefix explains what the server really read from its
cache. Compactions and clearings of the tool that recorded are replayed too;
once an arm of ours has edited the view, the history that replay shows was never sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.plural import plural
from pipeline.replaying.replay import Recording, Replayed
from pipeline.views.trajectory import SHARED_REASONS


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheck:
    """Cached tokens of the same calls, replayed and recorded."""

    n_calls: int = 0
    n_compared: int = 0
    replayed: int = 0
    recorded: int = 0

    @property
    def sentence(self) -> str:
        """What to print."""
        over = f"Self-check, over {self.n_compared:,} of {plural(self.n_calls, 'call')}:"
        if not self.n_compared:
            calls = plural(self.n_calls, "call")
            return f"Self-check: none of {calls} has cache reads to compare with."
        if not self.recorded:
            return f"{over} cache reads are recorded as none and replayed as {self.replayed:,}."
        off = 100.0 * (self.replayed / self.recorded - 1.0)
        return (
            f"{over} cache reads are recorded as {self.recorded:,} tokens and replayed as "
            f"{self.replayed:,} ({off:+.1f}%)."
        )


def self_check(recording: Recording, full_history: Replayed) -> SelfCheck:
    """Return how the replayed unedited history compares with what the server reported.

    Args:
        recording: what was replayed.
        full_history: the arm that shows everything, replayed over it.
    """
    compared = replayed = recorded = 0
    edited = False
    for call, again in zip(recording.own_calls, full_history.calls, strict=True):
        edited = edited or any(edit.reason not in SHARED_REASONS for edit in call.edits)
        if edited or call.cached_tokens is None:
            continue
        prefix = again.cache.lcp_block_tokens
        compared += 1
        replayed += again.cache.lcp_tokens if prefix is None else prefix
        recorded += call.cached_tokens
    return SelfCheck(
        n_calls=len(recording.own_calls), n_compared=compared, replayed=replayed, recorded=recorded
    )


def total(checks: Iterable[SelfCheck]) -> SelfCheck:
    """Return the checks of several recordings as one."""
    found = list(checks)
    return SelfCheck(
        n_calls=sum(c.n_calls for c in found),
        n_compared=sum(c.n_compared for c in found),
        replayed=sum(c.replayed for c in found),
        recorded=sum(c.recorded for c in found),
    )
