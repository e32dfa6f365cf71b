"""Full analyze and the tokens query on a synthetic sweep of 18,000 runs and 1.4 million calls.

    python benchmarks/analyze.py [--runs 18000] [--keep FOLDER]

Prints wall and CPU seconds and peak memory of: making the sweep, `analyze` as a command (tables,
figures, report), and tokens by arm from the runs table, against the same sum over the calls table.
CPU seconds stand beside wall seconds because a shared machine may be busy.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.analysis.tables import open_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=18_000)
    parser.add_argument("--keep", type=Path, help="make the sweep here and leave it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = args.keep or Path(scratch) / "sweep"
        if not (results / "sweep.lock.yaml").exists():
            words = ["--runs", str(args.runs), "--out", str(results)]
            command("synthetic", [sys.executable, "-m", "pipeline.synthetic", *words])
        out = Path(scratch) / "report"
        command(
            "analyze", [sys.executable, "-m", "pipeline.analyze", str(results), "--out", str(out)]
        )
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        page = (out / "report.html").stat().st_size
        print(f"report.html {page / 1e6:.1f} MB, everything written {size / 1e6:.1f} MB")
        with open_tables(results) as connection:
            calls = connection.execute("SELECT count(*) FROM calls").fetchall()[0][0]
            print(f"calls in the sweep: {calls}")
            query = "SELECT arm, avg(input_tokens) FROM done GROUP BY arm"
            best_of("tokens by arm, runs table", lambda: connection.execute(query).fetchall())
            query = (
                "SELECT r.arm, sum(prompt_tokens) FROM calls JOIN done r USING (run_id) GROUP BY 1"
            )
            best_of("tokens by arm, calls table", lambda: connection.execute(query).fetchall())


def command(name: str, words: list[str]) -> None:
    """Run a command; print its wall and CPU seconds and the largest child's memory so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {wall:.1f} s wall, {cpu:.1f} s CPU, peak so far {after.ru_maxrss / 1e6:.2f} GB")


def best_of(name: str, work: Callable[[], object], *, times: int = 5) -> None:
    """Run `work` several times; print the quickest."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    print(f"{name}: {1000 * min(seconds):.0f} ms")


if __name__ == "__main__":
    main()
