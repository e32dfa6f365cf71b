"""Planning 18,000 runs: one compose and plain Python, against one Hydra compose a run.

    python benchmarks/planning.py [DATASET]        (default: 500 generated rows)

Prints seconds and peak memory of a whole dry run, and what one `compose()` costs in the same
process: the peer composes once a run.
"""

import resource
import sys
import time
from pathlib import Path

from hydra import compose, initialize_config_dir

from pipeline.benchmarks.rows import row_sha256
from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.planning.config import CONF, sweep_spec
from pipeline.planning.grid import planned_runs
from pipeline.records.plan import plan_bytes

N_RUNS = 18_000
OVERRIDES = ["+sweep=full500", "seeds=[0,1,2,3,4,5,6,7,8]"]


def rows_of(arguments):
    if arguments:
        return load_rows(Path(arguments[0]))
    return [{"instance_id": f"org__repo-{n}", "repo": "org/repo"} for n in range(500)]


def main(arguments):
    rows = rows_of(arguments)
    started = time.perf_counter()
    spec = sweep_spec(OVERRIDES)
    composed = time.perf_counter()
    digests = {str(row["instance_id"]): row_sha256(row) for row in rows}
    runs = planned_runs(spec, rows, digests)
    size = len(plan_bytes(runs))
    done = time.perf_counter()

    peer_started = time.perf_counter()
    n_composes = 10
    for _ in range(n_composes):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            compose("config", overrides=OVERRIDES)
    compose_s = (time.perf_counter() - peer_started) / n_composes

    ours_s = done - started
    peer_s = compose_s * len(runs)
    print(f"runs planned               {len(runs):,}")
    print(f"compose and validate       {composed - started:.2f} s")
    print(f"grid, ids, plan.parquet    {done - composed:.2f} s ({size:,} bytes)")
    print(f"all of it                  {ours_s:.2f} s")
    print(f"one compose()              {compose_s * 1000:.0f} ms; one a run: {peer_s / 60:.0f} min")
    print(f"ratio                      1/{peer_s / ours_s:,.0f}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory                {peak_mb:.0f} MB")
    assert len(runs) == len(rows) * 36


if __name__ == "__main__":
    main(sys.argv[1:])
