"""Does replay agree with what was billed? The unedited history against the recorded cache.

A replayed price is as good as the replayed prefix explains what the server really read from its
cache and wrote to it. Compactions and clearings of the tool that recorded are
replayed too; once an arm of ours has edited the view, the history that replay shows was never sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from statistics import median

from pipeline.plural import plural
from pipeline.replaying.replay import Calibration, Recording, Replayed, ReplayedCall
from pipeline.views.trajectory import SHARED_REASONS

CLOSE = 0.02
"""A replay that is off by no more needs no reasons."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheck:
    """Tokens of the same calls, replayed and recorded."""

    n_calls: int = 0
    n_compared: int = 0
    replayed: int = 0
    """Cache reads."""
    recorded: int = 0
    written_replayed: int = 0
    written_recorded: int = 0
    prompt_replayed: int = 0
    prompt_recorded: int = 0
    n_aside: int = 0
    """Calls beside the conversation: a cache may hold what they sent."""
    hidden_tokens: tuple[int, ...] = ()
    """By recording: of the first prompt, what the file does not hold."""
    served_tokens: int = 0
    residual_tokens: float = 0.0

    @property
    def sentences(self) -> Iterator[str]:
        """What to print."""
        calls = plural(self.n_calls, "call")
        if not self.n_compared:
            yield f"Self-check: none of {calls} has cache reads to compare with."
        else:
            yield (
                f"Self-check, over {self.n_compared:,} of {calls}: cache reads are"
                f" {_against(self.replayed, self.recorded)}"
                + (
                    f"; writes are {_against(self.written_replayed, self.written_recorded)}."
                    if self.written_recorded
                    else "."
                )
            )
        yield from self._reasons()

    def _reasons(self) -> Iterator[str]:
        """Yield what the sizes rest on, and what may be why the replay is off."""
        if self.prompt_recorded:
            yield f"Prompts are {_against(self.prompt_replayed, self.prompt_recorded)}."
        if self.hidden_tokens:
            yield (
                f"Not in the files, and taken from each first prompt (system prompt, tools,"
                f" template): {median(self.hidden_tokens):,.0f} tokens in the median session."
            )
        if self.served_tokens:
            share = 100 * self.residual_tokens / self.served_tokens
            yield (
                "Texts have the sizes by which the prompts grew; one ratio of served to offline"
                f" tokens for all of a session would miss single steps by {share:.0f}%, which is"
                " what cut outputs are uncertain by (--token-counter changes the offline count)."
            )
        off = abs(self.replayed - self.recorded) > CLOSE * self.recorded
        if self.n_compared and off:
            aside = f"{self.n_aside} calls on other branches, " if self.n_aside else ""
            yield (
                "It is off by more than 2%. What can be behind it and is not in the files:"
                f" {aside}prefixes that other sessions had sent, evictions, cache breakpoints of"
                " the tool, system prompts that changed."
            )


def self_check(
    recording: Recording,
    full_history: Replayed,
    calibration: Calibration | None = None,
    *,
    ttl_s: float | None = None,
) -> SelfCheck:
    """Return how the replayed unedited history compares with what the server reported.

    Args:
        recording: what was replayed.
        full_history: the arm that shows everything, replayed over it.
        calibration: of its sizes.
        ttl_s: idle seconds after which the cache is cold; None: it is never.
    """
    compared = replayed = recorded = 0
    writes, prompts = [0, 0], [0, 0]
    edited = False
    steps = (call for call in full_history.calls if call.kind == "step")
    for call, again in zip(recording.own_calls, steps, strict=True):
        edited = edited or any(edit.reason not in SHARED_REASONS for edit in call.edits)
        if edited:
            continue
        read = _read(again, ttl_s)
        if call.prompt_tokens is not None:
            prompts[0] += again.cache.prompt_tokens
            prompts[1] += call.prompt_tokens
        if call.written_tokens is not None:
            writes[0] += again.cache.prompt_tokens - read
            writes[1] += call.written_tokens
        if call.cached_tokens is not None:
            compared += 1
            replayed += read
            recorded += call.cached_tokens
    return SelfCheck(
        n_calls=len(recording.own_calls),
        n_compared=compared,
        replayed=replayed,
        recorded=recorded,
        written_replayed=writes[0],
        written_recorded=writes[1],
        prompt_replayed=prompts[0],
        prompt_recorded=prompts[1],
        n_aside=len(recording.aside),
        hidden_tokens=() if calibration is None else (calibration.hidden_tokens,),
        served_tokens=0 if calibration is None else calibration.served_tokens,
        residual_tokens=0.0 if calibration is None else calibration.residual_tokens,
    )


def _read(call: ReplayedCall, ttl_s: float | None) -> int:
    """Return what a cache that holds a prefix for so long had of a call."""
    if call.is_other_model:
        return 0
    if ttl_s is not None and call.idle_s is not None and call.idle_s > ttl_s:
        return 0
    prefix = call.cache.lcp_block_tokens
    return call.cache.lcp_tokens if prefix is None else prefix


def total(checks: Iterable[SelfCheck]) -> SelfCheck:
    """Return the checks of several recordings as one."""
    found = list(checks)
    sums = {
        name: sum(getattr(check, name) for check in found)
        for name in (f.name for f in fields(SelfCheck))
        if name != "hidden_tokens"
    }
    hidden = tuple(size for check in found for size in check.hidden_tokens)
    return SelfCheck(**sums, hidden_tokens=hidden)


def _against(replayed: int, recorded: int) -> str:
    if not recorded:
        return f"recorded as none and replayed as {replayed:,}"
    off = 100.0 * (replayed / recorded - 1.0)
    return f"recorded as {recorded:,} tokens and replayed as {replayed:,} ({off:+.1f}%)"
