"""Size and cost of keeping a run: mini-SWE-agent's traj.json against our journal and tables.

Usage: python benchmarks/log_size.py TRAJECTORIES

Prints, over all files found: bytes per run as traj.json, as a journal frame and in the Parquet
tables, and the CPU time of appending a run once against rewriting the JSON file at every step, as
mini does. Target: the log at most 1/12 of traj.json.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.records.foreign.files import trajectory_files
from pipeline.records.ingested import Origin, ingest
from pipeline.records.journal import Journal, run_of, scan
from pipeline.records.layout import Layout
from pipeline.records.tables import compact


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def rewritten_every_step(data: dict[str, Any], path: Path) -> None:
    """Save as mini does: the whole file after every step."""
    messages = data["messages"]
    for end, message in enumerate(messages, start=1):
        if message["role"] in ("tool", "exit"):
            path.write_text(json.dumps({**data, "messages": messages[:end]}, indent=2))


def main(folder: Path) -> None:
    files = list(trajectory_files(folder))
    json_bytes = sum(len(json.dumps(json.loads(p.read_text()), indent=2)) for p in files)
    with tempfile.TemporaryDirectory() as scratch:
        layout = Layout(Path(scratch))
        origin = Origin(sweep="b", benchmark="b", counter_name="characters", node="")
        report = ingest(
            iter(files), layout, lambda: Journal(layout.journal("w")), count=len, origin=origin
        )
        if report.bad:
            raise SystemExit(f"unreadable: {report.bad}")
        journal_bytes = layout.journal("w").stat().st_size
        frames = scan(layout.journal("w")).frames
        records = [run_of(frame) for frame in frames]
        compact(layout)
        tables = list(layout.tables.rglob("*.parquet"))
        table_bytes = sum(p.stat().st_size for p in tables)
        footer_bytes = sum(pq.ParquetFile(p).metadata.serialized_size for p in tables)
        with Journal(layout.journal("again")) as journal:
            append_s = cpu_s(lambda: [journal.append_run(record) for record in records])
        datas = [json.loads(p.read_text()) for p in files]
        target = Path(scratch) / "mini.traj.json"
        rewrite_s = cpu_s(lambda: [rewritten_every_step(data, target) for data in datas])
    n = len(files)
    steps = sum(len(r.calls) for r in records)
    print(f"{n} runs, {steps} steps; the folder holds {[p.name for p in files]}")
    footers = f"without footers ({footer_bytes / 1e3:.0f} kB), which a worker's runs share"
    for name, size, note in (
        ("traj.json", json_bytes, ""),
        ("journal", journal_bytes, ""),
        ("tables", table_bytes, ""),
        ("  rows", table_bytes - footer_bytes, footers),
    ):
        print(f"{name:14} {size / n / 1e3:8.1f} kB a run   1/{json_bytes / size:.1f}   {note}")
    print(f"saving, mini   {rewrite_s / steps * 1e3:8.2f} ms CPU a step (whole file, every step)")
    print(f"saving, ours   {append_s / steps * 1e3:8.2f} ms CPU a step (one append a run)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
