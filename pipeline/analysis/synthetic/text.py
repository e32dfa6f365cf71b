"""Made-up messages: what the synthetic agent read, from a pool of file windows.

Outputs that are read twice carry the same lines, so that re-fetches are there to be found. Only
tool outputs have text of a real size; assistant messages carry the command.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analysis.arrays import IntArray
from pipeline.analysis.synthetic.rollouts import PLAN_STEPS, Calls, RunBatch
from pipeline.analysis.synthetic.truth import SyntheticSweep

PLACEHOLDER = "[Earlier command output omitted.]"

_POOL = 1_500
"""Windows to read; each is 20 lines that no other window has."""

_KEPT_SHARE = 0.4
"""Of the outputs of a finished plan step, those that a pruning arm keeps."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Commands and their outputs; the last entry is an edit without output worth reading."""

    commands: pa.Array
    outputs: pa.Array


def made_pool() -> Pool:
    """Return the pool; it is the same for every synthetic sweep."""
    commands, outputs = [], []
    for window in range(_POOL):
        path, start = f"src/module_{window % 60:02d}.py", 1 + 20 * (window // 60)
        commands.append(f"sed -n '{start},{start + 19}p' {path}")
        outputs.append(
            "".join(
                f"    value_{window}_{line} = compute(item_{line}, limit={window + line})\n"
                for line in range(20)
            )
        )
    commands.append("python -m pytest -q tests")
    outputs.append("1 passed\n")
    return Pool(commands=pa.array(commands), outputs=pa.array(outputs))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What each step of a batch read and when it was pruned; one entry a step."""

    run: IntArray
    step_index: IntArray
    entry: IntArray
    """Index into the pool."""
    pruned_at_call: IntArray
    """-1 where it never was."""


def made_outputs(
    sweep: SyntheticSweep, batch: RunBatch, calls: Calls, rng: np.random.Generator
) -> Outputs:
    """Return what every step read: a new window, one read before, or nothing."""
    steps = ~calls.is_cleanup
    run, step = calls.run[steps], calls.step_index[steps]
    n_steps = np.bincount(run)
    first = np.cumsum(n_steps) - n_steps
    refetch = np.array([sweep.arms[a].refetch for a in batch.arm])
    entry = rng.integers(0, _POOL, size=len(run))
    luck = rng.random(len(run))
    entry[luck > 0.7] = _POOL
    again = (luck < refetch[run]) & (step > 1)
    earlier = first[run] + (rng.random(len(run)) * (step - 1)).astype(np.int64)
    entry[again] = entry[earlier[again]]
    prunes = np.array([sweep.arms[a].prunes for a in batch.arm])
    plan_step = (step - 1) * PLAN_STEPS // n_steps[run]
    pruned = prunes[run] & (rng.random(len(run)) > _KEPT_SHARE) & (plan_step < PLAN_STEPS - 1)
    at_call = _first_call_of_plan_step(calls, steps, run, plan_step, n_steps)
    return Outputs(
        run=run, step_index=step, entry=entry, pruned_at_call=np.where(pruned, at_call, -1)
    )


def _first_call_of_plan_step(
    calls: Calls, steps: np.ndarray, run: IntArray, plan_step: IntArray, n_steps: IntArray
) -> IntArray:
    """Return the call index of the first step call after each step's plan step ended."""
    first = np.cumsum(n_steps) - n_steps
    ended = -(-(plan_step + 1) * n_steps[run] // PLAN_STEPS)
    position = first[run] + np.minimum(ended, n_steps[run] - 1)
    found: IntArray = calls.call_index[steps][position]
    return found


def message_columns(outputs: Outputs, pool: Pool, run_ids: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of `messages`: for each step the assistant's and the tool's message."""
    n = len(outputs.run)
    take = pa.array(np.repeat(outputs.entry, 2))
    is_tool = pa.array(np.tile([False, True], n))
    commands, nothing = pool.commands.take(take), pa.nulls(2 * n, pa.string())
    contents = pc.if_else(is_tool, pool.outputs.take(take), pa.scalar("Next command."))
    ids = pc.binary_join_element_wise(
        "call", pa.array(np.repeat(outputs.step_index, 2)).cast(pa.string()), "_"
    )
    calls = pc.binary_join_element_wise(
        '[{"id":"', ids, '","type":"function","function":{"name":"bash","arguments":"{}"}}]', ""
    )
    pruned = np.repeat(outputs.pruned_at_call, 2)
    was_pruned = pc.and_(is_tool, pa.array(pruned >= 0))
    return {
        "run_id": run_ids.take(pa.array(np.repeat(outputs.run, 2))),
        "message_index": pa.array(np.repeat(2 * outputs.step_index, 2) + np.tile([0, 1], n)),
        "step_index": pa.array(np.repeat(outputs.step_index, 2)),
        "role": pc.if_else(is_tool, "tool", "assistant"),
        "tool_calls": pc.if_else(is_tool, nothing, calls),
        "tool_call_id": pc.if_else(is_tool, ids, nothing),
        "tool": pc.if_else(is_tool, "bash", pa.scalar(None, pa.string())),
        "command": pc.if_else(is_tool, commands, nothing),
        "returncode": pc.if_else(is_tool, 0, pa.scalar(None, pa.int64())),
        "content": contents,
        "n_tokens": pc.cast(pc.divide(pc.utf8_length(contents), 4), pa.int64()),
        "n_lines": pc.count_substring(contents, "\n"),
        "truncated": pa.array(np.zeros(2 * n, dtype=bool)),
        "pruned_at_call": pc.if_else(was_pruned, pa.array(pruned), pa.scalar(None, pa.int64())),
        "prune_reason": pc.if_else(was_pruned, "prune", nothing),
        "replaced_by": pc.if_else(was_pruned, PLACEHOLDER, nothing),
    }
