"""How long it takes to ask 18,000 runs what they cost, and what has become of them.

Usage: python benchmarks/tokens_query.py [RUNS] [TRAJECTORIES]

Makes synthetic tables (80 calls a run) and journals (20 kB a frame) in a scratch folder, then
times: tokens per run and arm from `runs`, the same summed from all rows of `calls`, and the state
of every run read from the journals. With a folder of traj.json files, reading those with `json` is
timed too and scaled to as many runs. Target: tokens per run and arm in under 0.2 s.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.records.columns import TABLES
from pipeline.records.foreign.files import trajectory_files
from pipeline.records.frames import FrameKind, packed_frame
from pipeline.records.layout import Layout
from pipeline.records.schema import schema_of
from pipeline.records.states import run_states

CALLS = 80
RUNS_A_JOURNAL = 60
ARMS = 36
FRAME_BYTES = 20_000


def wall_s(work: Callable[[], object]) -> float:
    """Return the median wall time of five tries."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return sorted(times)[2]


def made_table(name: str, columns: dict[str, object], n_rows: int) -> pa.Table:
    """Return a table of `n_rows`; columns not given are null."""
    schema = schema_of(TABLES[name])
    arrays = [
        pa.array(columns[f.name], type=f.type) if f.name in columns else pa.nulls(n_rows, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def make_tables(layout: Layout, n_runs: int, rng: np.random.Generator) -> None:
    ids = [f"org__repo-{i // ARMS}-qwen3_5_27b-arm{i % ARMS}-s0-{i:012x}" for i in range(n_runs)]
    prompt = rng.integers(2_000, 60_000, (n_runs, CALLS))
    runs = {
        "run_id": ids,
        "arm": [f"arm{i % ARMS}" for i in range(n_runs)],
        "model": ["qwen3_5_27b"] * n_runs,
        "failure_class": ["ok"] * n_runs,
        "input_tokens": prompt.sum(axis=1),
        "output_tokens": prompt.sum(axis=1) // 40,
        "patch": ["diff --git a/x b/x\n" * 40] * n_runs,
    }
    write(layout.table_file("runs"), made_table("runs", runs, n_runs))
    for start in range(0, n_runs, RUNS_A_JOURNAL):
        part = ids[start : start + RUNS_A_JOURNAL]
        n_rows = len(part) * CALLS
        calls = {
            "run_id": np.repeat(part, CALLS),
            "call_index": np.tile(np.arange(CALLS), len(part)),
            "kind": np.where(np.arange(n_rows) % 10 == 9, "cleanup", "step"),
            "prompt_tokens": prompt[start : start + RUNS_A_JOURNAL].ravel(),
            "completion_tokens": rng.integers(50, 900, n_rows),
        }
        write(layout.table_part("calls", f"w{start}"), made_table("calls", calls, n_rows))


def make_journals(layout: Layout, n_runs: int) -> None:
    layout.journals.mkdir(parents=True)
    for start in range(0, n_runs, RUNS_A_JOURNAL):
        with layout.journal(f"w{start}").open("wb") as file:
            for number in range(start, min(start + RUNS_A_JOURNAL, n_runs)):
                head = {
                    "run_id": f"org__repo-{number}-qwen3_5_27b-arm-s0-{number:012x}",
                    "attempt": 1,
                    "failure_class": "ok",
                    "finished_at": float(number),
                    "patch_sha256": f"{number:064x}",
                    "limit_patch_sha256": None,
                    "input_tokens": 10**6,
                    "output_tokens": 10**4,
                    "n_steps": CALLS,
                    "wall_s": 600.0,
                    "started_at": 0.0,
                    "evidence": "synthetic",
                }
                file.write(packed_frame(FrameKind.RUN, head, os.urandom(FRAME_BYTES)))


def json_s(folder: Path, n_runs: int) -> float:
    files = list(trajectory_files(folder))
    each = wall_s(
        lambda: [
            sum(
                (m.get("extra", {}).get("response") or {}).get("usage", {}).get("prompt_tokens", 0)
                for m in json.loads(p.read_bytes())["messages"]
            )
            for p in files
        ]
    )
    return each / len(files) * n_runs


def main(n_runs: int, trajectories: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        layout, running = Layout(Path(scratch) / "done"), Layout(Path(scratch) / "running")
        make_tables(layout, n_runs, np.random.default_rng(0))
        make_journals(running, n_runs)
        connection = duckdb.connect()
        runs, calls = layout.table("runs"), layout.table("calls")
        from_runs = f"""SELECT run_id, arm, input_tokens, output_tokens
            FROM '{runs}/*.parquet' WHERE failure_class NOT LIKE 'infra%'"""
        from_calls = f"""SELECT run_id, arm, c.kind, sum(c.prompt_tokens), sum(c.completion_tokens)
            FROM '{runs}/*.parquet' r JOIN '{calls}/*.parquet' c USING (run_id) GROUP BY ALL"""
        print(f"{n_runs} runs, {n_runs * CALLS} calls")
        runs_s = wall_s(lambda: connection.execute(from_runs).fetchnumpy())
        print(f"tokens per run and arm, from runs    {runs_s * 1e3:9.0f} ms")
        calls_s = wall_s(lambda: connection.execute(from_calls).fetchnumpy())
        print(f"the same by kind, from all calls     {calls_s * 1e3:9.0f} ms")
        if trajectories is not None:
            scaled_s = json_s(trajectories, n_runs)
            print(f"from traj.json, scaled               {scaled_s * 1e3:9.0f} ms")
            print(f"ratio to the query over runs         {scaled_s / runs_s:9.0f}")
        states_s = wall_s(lambda: run_states(running))
        print(f"state of every run, from journals    {states_s * 1e3:9.0f} ms")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 18_000,
        Path(sys.argv[2]) if len(sys.argv) > 2 else None,
    )
