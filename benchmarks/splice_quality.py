"""What splicing costs in quality: next-token distributions and greedy answers, on real weights.

    PYTHONPATH=. OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE VLLM_CPU_OMP_THREADS_BIND=nobind \\
        .venv-vllm/bin/python benchmarks/splice_quality.py .cache/models/smollm2 \\
        --part one|several|run|check [--seeds 2] [--dtype float32] [--out FILE.jsonl]

`one`: one edit, by depth, kind of survivor and repair. `several`: 1, 2 and 4 edits in one step.
`run`: masking, edit after edit, with and without a refresh. `check`: the least of it. Histories are
made up: an agent runs a command and reads its output; a survivor sums up the output that is cut, or
does not.
Everything is compared with the full recompute of the edited history, and with the unedited one. The
engine is in this process, so that its caches can be read; plan and connector are the product's.
"""

import argparse
import json
import os
import random
import statistics
from itertools import count
from pathlib import Path
from types import SimpleNamespace

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

import torch
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group

from pipeline.serving.splice.matching import Piece, holes, planned_pieces

N_GREEDY = 16
REPAIRS = (0, 16, 64)
PLACEHOLDER = "[Earlier command output omitted.]"
NAMES = ["ada", "bob", "cy", "dee", "eve", "fay", "gus", "hal", "ida", "jon"]
salts = count()


class Engine:
    """vLLM in this process, with the product's connector."""

    def __init__(self, model, dtype):
        transfer = KVTransferConfig(
            kv_connector="SpliceConnector",
            kv_connector_module_path="pipeline.serving.splice.connector",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
        )
        self.llm = LLM(
            model, dtype=dtype, enforce_eager=True, block_size=32, max_model_len=4096,
            max_num_batched_tokens=4096, kv_cache_memory_bytes=1 << 29, max_logprobs=-1,
            distributed_executor_backend="uni", kv_transfer_config=transfer,
        )  # fmt: skip
        self.tokenizer = self.llm.get_tokenizer()

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False)

    def go(self, ids, salt, params=None, n=1, logprobs=False):
        sampling = SamplingParams(
            temperature=0, max_tokens=n, min_tokens=n, ignore_eos=True, detokenize=False,
            logprobs=-1 if logprobs else None, flat_logprobs=logprobs,
            extra_args={"kv_transfer_params": {"splice": params}} if params else None,
        )  # fmt: skip
        prompt = {"prompt_token_ids": ids, "cache_salt": salt}
        (done,) = self.llm.generate([prompt], sampling, use_tqdm=False)
        answer = done.outputs[0]
        said = (done.kv_transfer_params or {}).get("splice", {})
        found = SimpleNamespace(ids=list(answer.token_ids), said=said, logprobs=None)
        if logprobs:
            flat = answer.logprobs
            a, b = flat.start_indices[0], flat.end_indices[0]
            found.logprobs = torch.full((max(flat.token_ids[a:b]) + 1,), -1e30, dtype=torch.float64)
            found.logprobs[torch.tensor(flat.token_ids[a:b])] = torch.tensor(
                flat.logprobs[a:b], dtype=torch.float64
            )
        return found

    def told(self, ids, salt):
        """Return what the model says to a prompt whose keys are in the cache under `salt`."""
        first = self.go(ids, salt, logprobs=True)
        return SimpleNamespace(logprobs=first.logprobs, greedy=self.go(ids, salt, n=N_GREEDY).ids)

    def splice(self, old, new, salt, run, repair=0, planned=None):
        """Have `new` made of `old`; return the tokens rotated and computed."""
        pieces = planned_pieces(old, new, repair) if planned is None else planned
        said = {"run": run, "pieces": [[p.new, p.old, p.n] for p in pieces]}
        parts = [(new[:end], {**said, "part": True}) for end in holes(pieces)]
        work = [self.go(ids, salt, params).said for ids, params in [*parts, (new, said)]]
        return sum(w["rotated"] for w in work), sum(w["computed"] for w in work)

    def cached(self, ids, salt):
        """Return what the engine's own cache holds: (layers, 2, tokens, heads, head size)."""
        store = get_kv_transfer_group()._parts
        known, run = set(store), f"probe{next(salts)}"
        self.go(ids, salt, {"run": run})
        new = [store[part] for part in sorted(set(store) - known)]
        found = torch.cat(new, dim=2)
        self.go([0], "end", {"run": run, "end": True})
        self.go([0], "end")
        return found


def message(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def turn(rng, number, *, sums_up):
    """Return command, output and what the agent says to it."""
    rows = [
        (rng.choice(NAMES), rng.randint(10, 999), f"{rng.choice(NAMES)}_{i}.py") for i in range(7)
    ]
    listing = "\n".join(f"{who} {size:4d} src/part{number}/{file}" for who, size, file in rows)
    most = max(rows, key=lambda row: row[1])
    said = (
        f"The largest file is src/part{number}/{most[2]} with {most[1]} bytes; {most[0]} owns it."
        if sums_up
        else f"Part {number} is done. Next I look at the build of the documents, another task."
    )
    return (
        message("assistant", f"$ ls -l src/part{number}"),
        message("tool", listing),
        message("assistant", said),
    )


def history(seed, n_turns, *, sums_up):
    """Return a conversation as a list of texts, and the places of its outputs."""
    rng = random.Random(seed)
    texts = [
        message("system", "You are a careful assistant. You run commands and answer briefly."),
        message("user", "List the parts of the project and say who owns the large files."),
    ]
    outputs = []
    for number in range(n_turns):
        command, output, said = turn(rng, number, sums_up=sums_up)
        outputs.append(len(texts) + 1)
        texts += [command, output, said]
    return texts, outputs


def omitted(texts, outputs):
    return [
        message("tool", PLACEHOLDER) if place in outputs else t for place, t in enumerate(texts)
    ]


def kl(p, q):
    return float((p.exp() * (p - q)).sum())


def agreement(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def compared(name, full, unedited, spliced, **facts):
    return {
        **facts,
        "variant": name,
        "kl": kl(full.logprobs, spliced.logprobs),
        "kl_unedited": kl(unedited.logprobs, spliced.logprobs),
        "kl_edit": kl(full.logprobs, unedited.logprobs),
        "top1": full.greedy[0] == spliced.greedy[0],
        "top1_unedited": unedited.greedy[0] == spliced.greedy[0],
        "equal": agreement(full.greedy, spliced.greedy),
        "equal_unedited": agreement(unedited.greedy, spliced.greedy),
        "equal_edit": agreement(full.greedy, unedited.greedy),
    }


def edit(engine, texts, cut, facts, variants):
    """Yield rows for one edit of a history: the outputs `cut` are omitted."""
    end = message("user", "Who owns the largest file of part 2?") + "<|im_start|>assistant\n"
    before = engine.ids("".join(texts))
    old, new = ([*engine.ids("".join(t)), *engine.ids(end)] for t in (texts, omitted(texts, cut)))
    plain = [f"plain{next(salts)}" for _ in range(2)]
    full, unedited = (engine.told(ids, salt) for ids, salt in zip((new, old), plain, strict=True))
    truth = engine.cached(new, plain[0])
    for name, repair, rotate in variants:
        run = f"run{next(salts)}"
        engine.go(before, run, {"run": run})
        if not rotate:
            engine_theta(1e30)
        rotated, computed = engine.splice(before, new, run, run, repair)
        engine_theta(None)
        row = compared(name, full, unedited, engine.told(new, run), **facts)
        found = engine.cached(new, run)
        pieces = planned_pieces(before, new, repair)[1:]
        row |= differences(truth, found, pieces) | {
            "tokens": len(new), "rotated": rotated, "computed": computed,
        }  # fmt: skip
        engine.go([0], run, {"run": run, "end": True})
        yield row


def engine_theta(value):
    """Switch rotation off: at so large a base nothing but the first pair of numbers turns."""
    connector = get_kv_transfer_group()
    if not hasattr(connector, "_true_theta"):
        connector._true_theta = connector._theta
    connector._theta = connector._true_theta if value is None else value


def differences(truth, found, pieces):
    """Return how far moved keys and values are from computed ones, by layer."""
    n = min(truth.shape[2], found.shape[2])
    at = torch.cat([torch.arange(p.new, min(p.end, n)) for p in pieces])
    a, b = truth[:, :, at].float(), found[:, :, at].float()
    relative = ((a - b).flatten(2).norm(dim=2) / a.flatten(2).norm(dim=2)).tolist()
    return {
        "layer0_key_max": float((a[0, 0] - b[0, 0]).abs().max()),
        "layer0_value_max": float((a[0, 1] - b[0, 1]).abs().max()),
        "key_scale": float(a[0, 0].abs().max()),
        "last_key_relative": relative[-1][0],
        "last_value_relative": relative[-1][1],
    }


def one(engine, seeds):
    variants = [(f"repair {r}", r, True) for r in REPAIRS]
    for seed in range(seeds):
        for sums_up in (True, False):
            texts, outputs = history(seed, 7, sums_up=sums_up)
            for depth in (0, 2, 4):
                facts = {"survivor": "sums up" if sums_up else "unrelated", "depth": depth}
                more = [("not rotated", 0, False)] if (seed, depth) == (0, 2) else []
                yield from edit(engine, texts, {outputs[depth]}, facts, [*variants, *more])


def check(engine, seeds):
    texts, outputs = history(seeds, 4, sums_up=True)
    variants = [("repair 0", 0, True), ("not rotated", 0, False)]
    yield from edit(engine, texts, {outputs[1]}, {"depth": 1}, variants)


def several(engine, seeds):
    for seed in range(seeds):
        texts, outputs = history(seed, 7, sums_up=True)
        for n in (1, 2, 4):
            variants = [("repair 0", 0, True), ("repair 16", 16, True)]
            yield from edit(engine, texts, set(outputs[1 : 1 + n]), {"edits": n}, variants)


def whole_run(engine, seeds):
    """Yield rows for masking that keeps two outputs, turn after turn."""
    end = engine.ids(message("user", "What is next?") + "<|im_start|>assistant\n")
    for seed in range(seeds):
        texts, outputs = history(seed, 9, sums_up=True)
        for name, repair, refresh in (("never", 0, 0), ("repair 16", 16, 0), ("refresh 3", 0, 3)):
            run, old, n_edits = f"run{next(salts)}", [], 0
            for shown in range(3, 10):
                part = texts[: 2 + 3 * shown]
                new = engine.ids("".join(omitted(part, set(outputs[: shown - 2]))))
                n_edits += shown > 3
                if refresh and n_edits > refresh:
                    engine.go([0], run, {"run": run, "end": True})
                    run, old, n_edits = f"run{next(salts)}", [], 0
                engine.splice(old, new, run, run, repair, None if old else [Piece(0, 0, 0)])
                old = new
                salt = f"plain{next(salts)}"
                full = engine.told([*new, *end], salt)
                unedited = engine.told([*engine.ids("".join(part)), *end], salt)
                told = engine.told([*new, *end], run)
                yield compared(name, full, unedited, told, edits=n_edits, turn=shown)
            engine.go([0], run, {"run": run, "end": True})


def table(rows, keys):
    """Print means and medians of the rows by the values of `keys`."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    print("|", " | ".join([*keys, "n", "KL mean / median / max", "top-1", f"equal of {N_GREEDY}",
          "KL to unedited", "edit alone: KL, equal"]), "|")  # fmt: skip
    print("|" + "---|" * (len(keys) + 6))
    for group, found in groups.items():

        def mean(key, found=found):
            return statistics.mean(float(row[key]) for row in found)

        kls = [row["kl"] for row in found]
        print("|", " | ".join([
            *map(str, group), str(len(found)),
            f"{mean('kl'):.3f} / {statistics.median(kls):.3f} / {max(kls):.3f}",
            f"{sum(row['top1'] for row in found)}/{len(found)}", f"{mean('equal'):.1f}",
            f"{mean('kl_unedited'):.3f}", f"{mean('kl_edit'):.3f}, {mean('equal_edit'):.1f}",
        ]), "|", flush=True)  # fmt: skip


PARTS = {
    "one": (one, [["variant"], ["variant", "survivor"], ["variant", "depth"]]),
    "check": (check, [["variant"]]),
    "several": (several, [["variant", "edits"]]),
    "run": (whole_run, [["variant"], ["variant", "turn"]]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--part", choices=PARTS, default="one")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out")
    options = parser.parse_args()
    engine = Engine(options.model, options.dtype)
    run, tables = PARTS[options.part]
    rows = []
    for row in run(engine, options.seeds):
        rows.append(row)
        if options.out:
            with Path(options.out).open("a") as file:
                file.write(json.dumps(row) + "\n")
    for keys in tables:
        table(rows, keys)
    layers = [row for row in rows if "layer0_key_max" in row and row["variant"] != "not rotated"]
    if layers:
        worst = max(layers, key=lambda row: row["layer0_key_max"])
        values = max(row["layer0_value_max"] for row in layers)
        print(
            f"layer 0: keys differ by at most {worst['layer0_key_max']:.1e} (largest key "
            f"{worst['key_scale']:.1f}), values by {values:.1e}"
        )
        for key in ("last_key_relative", "last_value_relative"):
            found = [row[key] for row in layers]
            print(f"{key}: {min(found):.3f} to {max(found):.3f}")


if __name__ == "__main__":
    main()
