"""Writes a synthetic sweep as a results folder: lock, plan, tables, and the truth beside them."""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.analysis.synthetic.rollouts import (
    PLAN_STEPS,
    Calls,
    Ends,
    RunBatch,
    made_calls,
    made_ends,
)
from pipeline.analysis.synthetic.text import Outputs, Pool, made_outputs, made_pool, message_columns
from pipeline.analysis.synthetic.truth import (
    Instances,
    SyntheticSweep,
    drawn_instances,
    true_effects,
)
from pipeline.fields.identity import digest_of
from pipeline.records.columns import CALLS, GRADES, MESSAGES, PLAN_EVENTS, RUNS, Table
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, lock_text
from pipeline.records.plan import PlannedRun, plan_bytes
from pipeline.records.schema import schema_of
from pipeline.spec.analysis import AnalysisPlan
from pipeline.spec.parse import parsed
from pipeline.spec.sweep import SweepSpec

TRUTH_FILE = "truth.json"

_BATCH_RUNS = 1_500
"""Runs a part; bounds memory at about 400 MB."""

_VERSIONS = '{"planprune":"synthetic"}'


def write_sweep(sweep: SyntheticSweep, results: Path, *, plan: AnalysisPlan | None = None) -> None:
    """Write `sweep` into `results`, which must not hold a sweep yet.

    Args:
        sweep: what to make up.
        results: the folder; made if absent.
        plan: the analysis plan in the lock; the default one with the sweep's reference if None.

    Raises:
        FileExistsError: the folder holds a lock already.
    """
    layout = Layout(results)
    if layout.lock.exists():
        raise FileExistsError(f"{results} already holds a sweep; choose another folder")
    results.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(sweep.seed)
    instances = drawn_instances(sweep, rng)
    planned = _planned(sweep, instances, rng)
    layout.plan.write_bytes(plan_bytes(planned))
    pool = made_pool()
    whole: dict[str, list[pa.Table]] = {RUNS.name: [], GRADES.name: []}
    for number, start in enumerate(range(0, len(planned), _BATCH_RUNS)):
        batch = _batch_of(planned[start : start + _BATCH_RUNS], instances)
        tables = _tables_of(sweep, instances, batch, pool, rng)
        for name, table in tables.items():
            if name in whole:
                whole[name].append(table)
            else:
                _write(table, layout.table_part(name, f"synthetic-{number:03d}"))
    for name, parts in whole.items():
        _write(pa.concat_tables(parts), layout.table_file(name))
    truth = {"sweep": asdict(sweep), "effects": true_effects(sweep, instances)}
    (results / TRUTH_FILE).write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    # The lock comes last: a folder with one is whole.
    layout.lock.write_text(lock_text(_lock(sweep, instances, plan)), encoding="utf-8")


def _planned(
    sweep: SyntheticSweep, instances: Instances, rng: np.random.Generator
) -> list[PlannedRun]:
    runs: list[PlannedRun] = []
    names = list(sweep.arms)
    for model, agent in product(sweep.models, sweep.agents):
        # The names of a sweep with one agent are older than sweeps with two.
        cell = model if len(sweep.agents) == 1 else f"{model}-{agent}"
        for seed in sweep.seeds:
            for instance_id, repo in zip(instances.ids, instances.repos, strict=True):
                block = f"{instance_id}-{cell}-s{seed}-p1"
                runs += (
                    PlannedRun(
                        run_id=f"{instance_id}-{cell}-{names[i]}-s{seed}",
                        block_id=block, position=0, phase=1, benchmark="synthetic",
                        instance_id=instance_id, repo=repo, model=model, agent=agent,
                        arm=names[i], seed=seed, cell_digest=f"{cell}-{names[i]}-{seed}",
                        row_sha256=digest_of(instance_id), evidence="synthetic",
                    )
                    for i in rng.permutation(len(names))
                )  # fmt: skip
    return [
        PlannedRun(**{**_fields(run), "position": position}) for position, run in enumerate(runs)
    ]


def _fields(run: PlannedRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in PlannedRun.__dataclass_fields__}


def _batch_of(planned: list[PlannedRun], instances: Instances) -> RunBatch:
    index = {name: i for i, name in enumerate(instances.ids)}
    return RunBatch(
        run_ids=[p.run_id for p in planned],
        instance=np.array([index[p.instance_id] for p in planned]),
        arm=[p.arm for p in planned],
        model=[p.model for p in planned],
        agent=[p.agent for p in planned],
        seed=np.array([p.seed for p in planned]),
        block_ids=[p.block_id for p in planned],
    )


def _tables_of(
    sweep: SyntheticSweep,
    instances: Instances,
    batch: RunBatch,
    pool: Pool,
    rng: np.random.Generator,
) -> dict[str, pa.Table]:
    ends, noise = made_ends(sweep, instances, batch, rng)
    calls = made_calls(sweep, instances, batch, ends, noise, rng)
    outputs = made_outputs(sweep, batch, calls, rng)
    run_ids = pa.array(batch.run_ids)
    patches = [
        f"synthetic patch of {run_id}" if failure == "ok" else ""
        for run_id, failure in zip(batch.run_ids, ends.failure_class, strict=True)
    ]
    hashes = [digest_of(patch) if patch else None for patch in patches]
    runs = _run_columns(instances, batch, ends, calls, outputs)
    runs |= {"patch": pa.array(patches), "patch_sha256": pa.array(hashes, pa.string())}
    return {
        RUNS.name: _table(RUNS, runs),
        CALLS.name: _table(CALLS, _call_columns(calls, run_ids)),
        MESSAGES.name: _table(MESSAGES, message_columns(outputs, pool, run_ids)),
        PLAN_EVENTS.name: _table(PLAN_EVENTS, _event_columns(ends, run_ids)),
        GRADES.name: _table(GRADES, _grade_columns(batch, instances, ends, hashes)),
    }


def _run_columns(
    instances: Instances,
    batch: RunBatch,
    ends: Ends,
    calls: Calls,
    outputs: Outputs,
) -> dict[str, Any]:
    n = len(batch.run_ids)

    def summed(values: Any, where: Any = None) -> Any:
        weights = values if where is None else np.where(where, values, 0)
        return np.bincount(calls.run, weights=weights, minlength=n).astype(np.int64)

    first = np.flatnonzero(calls.call_index == 0)
    peak = np.maximum.reduceat(calls.prompt_tokens, first)
    step_peak = np.maximum.reduceat(np.where(calls.is_cleanup, 0, calls.prompt_tokens), first)
    pruned = outputs.pruned_at_call >= 0
    n_pruned = np.bincount(outputs.run, weights=pruned, minlength=n).astype(np.int64)
    latency = np.bincount(calls.run, weights=calls.latency_s, minlength=n)
    started = 1.79e9 + 10.0 * np.arange(n)
    return {
        "run_id": batch.run_ids,
        "sweep": ["synthetic"] * n,
        "benchmark": ["synthetic"] * n,
        "instance_id": [instances.ids[i] for i in batch.instance],
        "repo": [instances.repos[i] for i in batch.instance],
        "model": batch.model,
        "agent": batch.agent,
        "arm": batch.arm,
        "seed": batch.seed,
        "block_id": batch.block_ids,
        "phase": np.ones(n, dtype=np.int64),
        "attempt": np.ones(n, dtype=np.int64),
        "exit_status": ["Submitted" if f == "ok" else f for f in ends.failure_class],
        "failure_class": ends.failure_class,
        "n_steps": ends.n_steps,
        **dict.fromkeys(
            ("n_calls", "n_counted_calls", "n_cache_counted_calls"),
            np.bincount(calls.run, minlength=n),
        ),
        "input_tokens": summed(calls.prompt_tokens),
        "cached_tokens": summed(calls.cached_tokens),
        "output_tokens": summed(calls.completion_tokens),
        "reasoning_tokens": np.zeros(n, dtype=np.int64),
        "cleanup_input_tokens": summed(calls.prompt_tokens, calls.is_cleanup),
        "cleanup_output_tokens": summed(calls.completion_tokens, calls.is_cleanup),
        "aux_input_tokens": np.zeros(n, dtype=np.int64),
        "aux_output_tokens": np.zeros(n, dtype=np.int64),
        "peak_context_tokens": peak,
        "peak_step_context_tokens": step_peak,
        "n_observations": ends.n_steps,
        "n_pruned": n_pruned,
        "pruned_tokens": n_pruned * 300,
        "n_cleanups": summed(calls.is_cleanup),
        "n_ignored_ids": np.zeros(n, dtype=np.int64),
        "n_format_errors": np.zeros(n, dtype=np.int64),
        "n_calls_as_text": np.zeros(n, dtype=np.int64),
        "loop": np.zeros(n, dtype=bool),
        "template_dropped_tokens": np.zeros(n, dtype=np.int64),
        "retry_tokens": np.zeros(n, dtype=np.int64),
        "wall_s": latency * 1.3,
        "model_s": latency,
        "tool_s": latency * 0.3,
        "gpu_s": latency / 8,
        "token_counter": ["synthetic"] * n,
        "evidence": ["synthetic"] * n,
        "started_at": started,
        "finished_at": started + latency * 1.3,
        "worker": ["synthetic"] * n,
        "node": ["synthetic"] * n,
        "versions": [_VERSIONS] * n,
        "journal": ["synthetic"] * n,
    }


def _call_columns(calls: Calls, run_ids: pa.Array) -> dict[str, Any]:
    kind = pc.if_else(pa.array(calls.is_cleanup), "cleanup", "step")
    return {
        "run_id": run_ids.take(pa.array(calls.run)),
        "call_index": calls.call_index,
        "step_index": calls.step_index,
        "kind": kind,
        "prompt_tokens": calls.prompt_tokens,
        "cached_tokens": calls.cached_tokens,
        "lcp_tokens": calls.lcp_tokens,
        "lcp_exact": np.ones(len(calls.run), dtype=bool),
        "spliced_tokens": calls.lcp_tokens + calls.rebilled_tokens,
        "lcp_block_tokens": calls.cached_tokens,
        "new_tokens": calls.new_tokens,
        "rebilled_tokens": calls.rebilled_tokens,
        "completion_tokens": calls.completion_tokens,
        "reasoning_tokens": np.zeros(len(calls.run), dtype=np.int64),
        "message_count": 2 * calls.step_index,
        "latency_s": calls.latency_s,
        "finish_reason": pa.repeat("tool_calls", len(calls.run)),
        "retry_tokens": np.zeros(len(calls.run), dtype=np.int64),
    }


def _event_columns(ends: Ends, run_ids: pa.Array) -> dict[str, Any]:
    """Return plan events: the plan is set at step 1, each plan step completed at its end."""
    n = len(ends.n_steps)
    run = np.repeat(np.arange(n), PLAN_STEPS)
    number = np.tile(np.arange(1, PLAN_STEPS + 1), n)
    done_at = -(-number * ends.n_steps[run] // PLAN_STEPS)
    return {
        "run_id": run_ids.take(pa.array(run)),
        "event_index": number,
        "step_index": done_at,
        "message_index": 2 * done_at + 1,
        "action": pa.repeat("complete", len(run)),
        "plan_step": number,
        "title": pc.binary_join_element_wise("part", pa.array(number).cast(pa.string()), " "),
        "status": pa.repeat("done", len(run)),
    }


def _grade_columns(
    batch: RunBatch, instances: Instances, ends: Ends, hashes: list[str | None]
) -> dict[str, Any]:
    n = len(batch.run_ids)
    resolved = [bool(s) and h is not None for s, h in zip(ends.solved, hashes, strict=True)]
    return {
        "run_id": batch.run_ids,
        "instance_id": [instances.ids[i] for i in batch.instance],
        "attempt": np.ones(n, dtype=np.int64),
        "resolved": resolved,
        "grade_class": ["resolved" if r else "unresolved" for r in resolved],
        "patch_exists": [h is not None for h in hashes],
        "patch_applied": [h is not None for h in hashes],
        "harness_version": ["synthetic"] * n,
        "patch_sha256": pa.array(hashes, pa.string()),
        "seconds": np.ones(n),
        "finished_at": np.full(n, 1.79e9),
    }


def _table(table: Table, columns: dict[str, Any]) -> pa.Table:
    """Return an Arrow table with the schema of `table`; columns not given are null."""
    schema = schema_of(table)
    n = len(columns["run_id"])
    arrays = [
        pa.nulls(n, field.type)
        if (values := columns.get(field.name)) is None
        else (
            values.cast(field.type)
            if isinstance(values, pa.Array | pa.ChunkedArray)
            else pa.array(values, type=field.type)
        )
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=1)


def _lock(sweep: SyntheticSweep, instances: Instances, plan: AnalysisPlan | None) -> Lock:
    """Return a lock that says what was made up, in the words of a real one."""
    plan = plan or AnalysisPlan(reference=sweep.reference, prespecified_seed=sweep.seeds[0])
    model = {"kind": "endpoint", "repo": "planprune/synthetic"}
    kinds = ("system", "instance", "observation", "format_error")
    templates = {f"{kind}_template": "-" for kind in kinds}
    spec = parsed(
        SweepSpec,
        {
            "name": "synthetic",
            "benchmark": {"name": "synthetic"},
            "models": {name: {"name": name, **model} for name in sweep.models},
            "agents": {name: {"name": name, **templates} for name in sweep.agents},
            "arms": {
                name: {"name": name, "policy": {"kind": arm.policy, **arm.parameters}}
                for name, arm in sweep.arms.items()
            },
            "seeds": sweep.seeds,
            "analysis": plan,
            "cluster": {"name": "synthetic", "kind": "local"},
        },
    )  # fmt: skip
    return Lock(
        spec=spec,
        created_at="2026-01-01T00:00:00+00:00",
        commit=None,
        dirty_sha256=None,
        versions={"planprune": "synthetic"},
        dataset_sha256=digest_of(list(instances.ids)),
        rows_sha256={name: digest_of(name) for name in instances.ids},
        analysis_sha256=digest_of(asdict(plan)),
    )
