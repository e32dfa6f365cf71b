"""Client CPU per agent step: 60-step runs with 4 kB outputs, ours beside mini-SWE-agent + litellm.

    python benchmarks/client_step.py [--steps 60] [--runs 5]

The server is a process of its own that answers at once, so what is measured is the client: CPU
seconds of this process over the steps of a run. Target: at most 2 ms a step, and at most 1/9 of the
peer in the same run; on the scaffold trae at most twice what it is on mini. Needs `litellm` beside
mini-SWE-agent for the peer.

Last come the milliseconds a step that `model.return_token_ids` adds: reading the prompt's ids out
of the answer, and finding the common prefix on them. Nothing of them is kept, so the disk pays
nothing.
"""

import argparse
import json
import random
import statistics
import time

from agents_under_test import RUNS, SCAFFOLDS
from latency_server import latency_server

from pipeline.accounting.prefix_tree import IdPrefix

STEPS_OF_IDS = 20
IDS_A_STEP = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    cpu_ms: dict[str, float] = {}
    with latency_server(0.0) as base_url:
        for name, make in (SCAFFOLDS | RUNS).items():
            run = make(base_url)
            run(5)
            samples = []
            for _ in range(options.runs):
                started = time.process_time()
                run(options.steps)
                samples.append((time.process_time() - started) / options.steps * 1e3)
            cpu_ms[name] = statistics.median(samples)
            print(f"{name:28} {cpu_ms[name]:7.2f} ms CPU a step (median of {options.runs} runs)")
    ours, trae, peer = cpu_ms.values()
    print(f"{'trae to mini':28} {trae / ours:7.1f} x")
    print(f"{'peer to ours':28} {peer / ours:7.1f} x")
    for prompt_tokens in (5_000, 15_000, 30_000, 60_000):
        more = token_ids_ms(prompt_tokens)
        print(f"token ids, {prompt_tokens:>6,} a prompt  {more:7.2f} ms CPU a step more")


def token_ids_ms(prompt_tokens: int) -> float:
    """Return what a step costs more where prompts of about that size come back as ids."""
    draw = random.Random(0)
    ids = [draw.randrange(1_000, 150_000) for _ in range(prompt_tokens + 20 * IDS_A_STEP)]
    prefix = IdPrefix()
    spent = 0.0
    for step in range(STEPS_OF_IDS):
        prompt = ids[: prompt_tokens + (step - STEPS_OF_IDS // 2) * IDS_A_STEP]
        body = json.dumps({"prompt_token_ids": prompt, "token_ids": prompt[:60]})
        started = time.process_time()
        answer = json.loads(body)
        prefix.charge(answer["prompt_token_ids"], answer["token_ids"])
        spent += time.process_time() - started
    return spent / STEPS_OF_IDS * 1e3


if __name__ == "__main__":
    main()
