"""Steps a second with 64 runs at once and 200 ms a call, ours beside mini-SWE-agent + litellm.

    python benchmarks/concurrent_steps.py [--threads 64] [--latency 0.2] [--steps 25]

Each side is one process with a thread a run; the server is another. The bound is threads /
latency; what is missing of it is the share of the server's time that is lost to the client's side.
Target: at least 90% of the bound, under 150 MB resident.
"""

import argparse
import resource
import subprocess
import sys
import threading
import time

from agents_under_test import RUNS
from latency_server import latency_server


def side(name: str, base_url: str, threads: int, steps: int) -> None:
    """Run one side in this process and print steps a second and megabytes."""
    run = RUNS[name](base_url)
    run(2)
    gate = threading.Barrier(threads + 1)

    def work() -> None:
        gate.wait()
        run(steps)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    started, cpu = time.monotonic(), time.process_time()
    for worker in workers:
        worker.join()
    wall_s = time.monotonic() - started
    cpu_ms = (time.process_time() - cpu) / (threads * steps) * 1e3
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{threads * steps / wall_s} {cpu_ms} {megabytes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--side", nargs=2, metavar=("NAME", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side(*options.side, options.threads, options.steps)
        return
    bound = options.threads / options.latency
    print(f"bound {bound:.0f} steps/s")
    with latency_server(options.latency) as base_url:
        for name in RUNS:
            command = [sys.executable, __file__, "--side", name, base_url]
            command += ["--threads", str(options.threads), "--steps", str(options.steps)]
            result = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=900
            )
            rate, cpu_ms, megabytes = map(float, result.stdout.split()[-3:])
            print(
                f"{name:28} {rate:7.1f} steps/s ({rate / bound:4.0%} of the bound, "
                f"{1 - rate / bound:5.1%} of the server's time lost), "
                f"{cpu_ms:6.2f} ms CPU a step, {megabytes:5.0f} MB"
            )


if __name__ == "__main__":
    main()
