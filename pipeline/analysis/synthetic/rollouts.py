"""Made-up runs as arrays: ends, calls and prompt sizes, a thousand runs at a time.

Everything is NumPy over flat arrays (one entry a call), because 1.4 million calls have to be made
in seconds. Text is `text`'s, files are `folder`'s.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.analysis.arrays import FloatArray, IntArray
from pipeline.analysis.synthetic.truth import ArmTruth, Instances, SyntheticSweep

PLAN_STEPS = 5
"""Plan steps of every made-up run; the last one's end triggers no cleanup."""

_BLOCK = 16
"""Cache block of the made-up server, tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunBatch:
    """Runs to make, one entry a run."""

    run_ids: list[str]
    instance: IntArray
    """Index into `Instances`."""
    arm: list[str]
    model: list[str]
    agent: list[str]
    seed: IntArray
    block_ids: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Calls of a batch, one entry a call, in order; `run` indexes the batch."""

    run: IntArray
    call_index: IntArray
    step_index: IntArray
    is_cleanup: npt.NDArray[np.bool_]
    after_prune: npt.NDArray[np.bool_]
    """The first step call whose view lost something."""
    prompt_tokens: IntArray
    completion_tokens: IntArray
    lcp_tokens: IntArray
    cached_tokens: IntArray
    rebilled_tokens: IntArray
    new_tokens: IntArray
    latency_s: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """How the runs of a batch went, one entry a run."""

    n_steps: IntArray
    solved: npt.NDArray[np.bool_]
    failure_class: list[str]


def made_ends(
    sweep: SyntheticSweep, instances: Instances, batch: RunBatch, rng: np.random.Generator
) -> tuple[Ends, FloatArray]:
    """Return how each run ends, and its noise factor (mean 1), which its tokens share."""
    n = len(batch.run_ids)
    noise = rng.lognormal(-(sweep.noise**2) / 2, sweep.noise, size=n)
    step_ratio = np.array([sweep.arms[a].steps for a in batch.arm])
    length = instances.length[batch.instance] * noise
    n_steps = np.clip(np.rint(sweep.mean_steps * length * step_ratio), 6, sweep.step_limit)
    chance = np.array(
        [instances.solve_chance[a][i] for a, i in zip(batch.arm, batch.instance, strict=True)]
    )
    solved = rng.random(n) < chance
    other = rng.random(n)
    capped = (n_steps >= sweep.step_limit) & ~solved
    classes = np.where(
        capped, "limit_steps", np.where(~solved & (other < 0.02), "submitted_empty", "ok")
    )
    ends = Ends(
        n_steps=n_steps.astype(np.int64), solved=solved, failure_class=[str(c) for c in classes]
    )
    return ends, noise


def made_calls(
    sweep: SyntheticSweep,
    instances: Instances,
    batch: RunBatch,
    ends: Ends,
    noise: FloatArray,
    rng: np.random.Generator,
) -> Calls:
    """Return every call of a batch, with prompt sizes that add up to the true totals."""
    arms = [sweep.arms[a] for a in batch.arm]
    cleanups = np.array([a.cleanups for a in arms])
    n_calls = ends.n_steps + cleanups
    run = np.repeat(np.arange(len(arms)), n_calls)
    first = np.cumsum(n_calls) - n_calls
    call_index = np.arange(len(run)) - first[run]
    is_cleanup, step_index = _cleanup_places(call_index, run, ends.n_steps, cleanups)
    progress = (step_index - 1) / np.maximum(ends.n_steps[run] - 1, 1)
    # A cleanup still sees what the plan step read: it belongs to the step that just ended.
    finished = (step_index - 1) * PLAN_STEPS // ends.n_steps[run] - is_cleanup
    drop = np.array([_drop(a) for a in arms])
    growth = sweep.first_prompt_tokens / (sweep.tokens_per_step * sweep.mean_steps)
    weight = np.maximum(growth + progress - drop[run] * finished / PLAN_STEPS, growth * 0.5)
    # The total is fixed by the truth; the profile only says how it is spread over the calls.
    tokens = np.array([a.tokens for a in arms])
    total = (
        sweep.mean_steps
        * (sweep.first_prompt_tokens + sweep.tokens_per_step * sweep.mean_steps / 2)
        * instances.length[batch.instance] ** 1.5
        * noise
        * tokens
    )
    spread = np.add.reduceat(weight, first)
    prompt = np.maximum(np.rint(weight * (total / spread)[run]), 50).astype(np.int64)
    completion = np.where(is_cleanup, 260, 120) + rng.integers(0, 160, size=len(run))
    prunes = np.array([a.prunes for a in arms])[run]
    new_segment = np.zeros(len(run), dtype=bool)
    new_segment[1:] = (finished[1:] > finished[:-1]) & (run[1:] == run[:-1])
    after_prune = new_segment & prunes & ~is_cleanup
    return _with_cache(
        run=run,
        call_index=call_index,
        step_index=step_index,
        is_cleanup=is_cleanup,
        after_prune=after_prune,
        prompt=prompt,
        completion=completion,
        rng=rng,
    )


def _drop(arm: ArmTruth) -> float:
    """Return how far the context falls at a plan step's end, as a share of what it grew to."""
    if not arm.prunes:
        return 0.0
    return float(np.clip(2.0 * (1 - arm.tokens / arm.steps), 0.05, 0.85))


def _cleanup_places(
    call_index: IntArray, run: IntArray, n_steps: IntArray, cleanups: IntArray
) -> tuple[npt.NDArray[np.bool_], IntArray]:
    """Return which calls are cleanups, and each call's step (a cleanup has the next step's)."""
    is_cleanup = np.zeros(len(run), dtype=bool)
    before = np.zeros(len(run), dtype=np.int64)
    for number in range(1, int(cleanups.max(initial=0)) + 1):
        # The number-th cleanup comes once number / PLAN_STEPS of the steps are done.
        place = np.ceil(n_steps * number / PLAN_STEPS).astype(np.int64) + number - 1
        has = cleanups[run] >= number
        is_cleanup |= has & (call_index == place[run])
        before += has & (call_index > place[run])
    return is_cleanup, call_index - before + 1


def _with_cache(
    *,
    run: IntArray,
    call_index: IntArray,
    step_index: IntArray,
    is_cleanup: npt.NDArray[np.bool_],
    after_prune: npt.NDArray[np.bool_],
    prompt: IntArray,
    completion: IntArray,
    rng: np.random.Generator,
) -> Calls:
    previous = np.zeros_like(prompt)
    previous[1:] = np.where(run[1:] == run[:-1], (prompt + completion)[:-1], 0)
    lcp = np.minimum(previous, prompt - 1)
    lcp = np.where(
        after_prune, (prompt * rng.uniform(0.2, 0.6, size=len(run))).astype(np.int64), lcp
    )
    lcp = np.where(call_index == 0, 0, np.maximum(lcp, 0))
    rebilled = np.where(after_prune, ((prompt - lcp) * 0.8).astype(np.int64), 0)
    return Calls(
        run=run,
        call_index=call_index,
        step_index=step_index,
        is_cleanup=is_cleanup,
        after_prune=after_prune,
        prompt_tokens=prompt,
        completion_tokens=completion,
        lcp_tokens=lcp,
        cached_tokens=lcp // _BLOCK * _BLOCK,
        rebilled_tokens=rebilled,
        new_tokens=prompt - lcp - rebilled,
        latency_s=0.2 + completion / 60 + (prompt - lcp) / 8000,
    )
