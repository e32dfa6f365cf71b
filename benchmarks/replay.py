"""How fast replay is: 290 trajectories x 60 arms on two cores (target: under two minutes).

    python benchmarks/replay.py [TRAJECTORIES] [--runs 290] [--arms 60] [--processes 2]

Copies real mini-SWE-agent trajectories (TRAJECTORIES, else ../shared/data/trajectories) until there
are enough, each under a name of its own, and replays them through the door's own functions.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipeline.spec.deletion_grid import deletion_grid

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "trajectories", type=Path, nargs="?", default=ROOT.parent / "shared/data/trajectories"
    )
    parser.add_argument("--runs", type=int, default=290)
    parser.add_argument("--arms", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    files = sorted(options.trajectories.rglob("*.traj.json"))
    if not files:
        sys.exit(f"no *.traj.json in {options.trajectories}")
    configured = [path.stem for path in sorted((ROOT / "conf" / "arm").glob("*.yaml"))]
    arms = (configured + [arm.name for arm in deletion_grid()])[: options.arms]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs):
            source = files[number % len(files)]
            shutil.copy(source, Path(folder) / f"{number:04}.traj.json")
        command = [sys.executable, "-m", "pipeline.replay", folder, "--json", "--arms", *arms]
        command += ["--processes", str(options.processes)]
        start = time.perf_counter()
        lines = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True
        ).stdout.splitlines()
        wall_s = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
    print(
        f"{options.runs} trajectories x {len(arms)} arms = {len(lines)} replays in {wall_s:.1f} s"
        f" on {options.processes} processes, {cpu_s:.1f} s of processor time:"
        f" {1000 * cpu_s / len(lines):.1f} ms each"
        " (target: under 120 s for 290 x 60)"
    )


if __name__ == "__main__":
    main()
