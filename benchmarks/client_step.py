"""Client CPU per agent step: 60-step runs with 4 kB outputs, ours beside mini-SWE-agent + litellm.

    python benchmarks/client_step.py [--steps 60] [--runs 5]

The server is a process of its own that answers at once, so what is measured is the client: CPU
seconds of this process over the steps of a run. Target: at most 2 ms a step, and at
most 1/9 of the peer in the same run. Needs `litellm` beside mini-SWE-agent for the peer.
"""

import argparse
import statistics
import time

from agents_under_test import RUNS
from latency_server import latency_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    cpu_ms: dict[str, float] = {}
    with latency_server(0.0) as base_url:
        for name, make in RUNS.items():
            run = make(base_url)
            run(5)
            samples = []
            for _ in range(options.runs):
                started = time.process_time()
                run(options.steps)
                samples.append((time.process_time() - started) / options.steps * 1e3)
            cpu_ms[name] = statistics.median(samples)
            print(f"{name:28} {cpu_ms[name]:7.2f} ms CPU a step (median of {options.runs} runs)")
    ours, peer = cpu_ms.values()
    print(f"{'ratio':28} {peer / ours:7.1f} x")


if __name__ == "__main__":
    main()
