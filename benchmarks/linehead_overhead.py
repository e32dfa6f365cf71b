"""What the head costs beside a backbone's prefill: the same tokens through one and the other.

    python -m benchmarks.linehead_overhead MODEL [--tokens N] [--repeats N] [--device cuda]
        [--dtype bfloat16] [--shapes]

The head scores all eight length buckets, as in the server. On CPUs processor time of one thread
counts, so that other work on the machine does not; on a GPU wall time between two waits for it.
`--shapes` takes no weights from MODEL but its configuration only: random ones cost the same.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoConfig, AutoModel

from pipeline.linehead.head import LineHead


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--shapes", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = backbone(options)
    hidden_size = model.config.get_text_config().hidden_size
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (1, options.tokens), device=options.device)
    hidden = torch.randn(options.tokens, hidden_size, device=options.device, dtype=model.dtype)
    heads = {
        "8 buckets": LineHead(hidden_size),
        "1": LineHead(hidden_size, length_embedding=False),
    }
    prefill, times = [], {name: [] for name in heads}
    with torch.inference_mode():
        for _ in range(options.repeats):
            prefill.append(seconds(options, lambda: model(input_ids=ids, use_cache=False)))
            for name, head in heads.items():
                head.to(options.device).eval()
                times[name].append(seconds(options, lambda h=head: h.scores_by_bucket(hidden)))
    base = statistics.median(prefill)
    print(f"prefill of {options.tokens} tokens: {base:.4f} s ({options.device}, {options.dtype})")
    for name, taken in times.items():
        print(f"head, {name}: {statistics.median(taken) / base:.2%} of prefill")


def backbone(options):
    dtype = getattr(torch, options.dtype)
    if not options.shapes:
        where = {"dtype": dtype, "local_files_only": True}
        return AutoModel.from_pretrained(options.model, **where).eval().to(options.device)
    config = AutoConfig.from_pretrained(options.model, local_files_only=True)
    with torch.device(options.device):
        return AutoModel.from_config(config, dtype=dtype).eval()


def seconds(options, run):
    if options.device == "cpu":
        started = time.process_time()
        run()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
