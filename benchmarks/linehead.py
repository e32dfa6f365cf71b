"""Does a head on a real backbone beat rules that look at no state? One fold a recorded task.

    python -m benchmarks.linehead FEATURES OUT [--epochs N] [--first-lr X] [--batch N] [--variants]

FEATURES comes from `python -m pipeline.linehead features`. Each instance is the test set once: the
head, its epoch and its threshold come from the others alone. Prints, per fold and over all folds'
lines together, F1, AUC and keep rate of the head, of the linear probe, and of the baselines, and
how long training took and how much memory. Runs again from where it stopped.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pipeline.linehead.baselines import PlainOutput, baselines
from pipeline.linehead.checkpoint import load_head
from pipeline.linehead.evaluation import figures_of
from pipeline.linehead.feature_store import open_store
from pipeline.linehead.linear import logistic_regression
from pipeline.linehead.metrics import LineScored, line_auc, line_metrics
from pipeline.linehead.probe import mean_states
from pipeline.linehead.scoring import scored
from pipeline.linehead.settings import HeadSettings, SplitSettings, TrainJob, TrainSettings
from pipeline.linehead.split import split_of
from pipeline.linehead.training import train_head


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--first-lr", type=float, default=3e-5)
    parser.add_argument("--batch", type=int, default=8, help="outputs a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", action="store_true", help="the loss ablations too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = open_store(options.features)
    rows = {}
    for instance in store.instances:
        for name, fold in fold_of(store, instance, options).items():
            rows.setdefault(name, []).append(fold)
    print(f"{len(store.entries)} outputs, {len(store.instances)} folds, {store.facts['backbone']}")
    print("| method | F1 | precision | recall | keep rate | F1 at 0.5 | mean AUC | AUC by fold |")
    print("|---|---|---|---|---|---|---|---|")
    for name, folds in rows.items():
        all_lines = line_metrics(
            [t for f in folds for t in f["truth"]], [d for f in folds for d in f["decisions"]]
        )
        at_half = line_metrics(
            [t for f in folds for t in f["truth"]], [d for f in folds for d in f["at_half"]]
        )
        area = np.mean([f["auc"] for f in folds])
        by_fold = " ".join(f"{f['auc']:.2f}" for f in folds)
        print(
            f"| {name} | {all_lines.f1:.3f} | {all_lines.precision:.3f} | {all_lines.recall:.3f} |"
            f" {all_lines.keep_rate:.3f} | {at_half.f1:.3f} | {area:.3f} | {by_fold} |"
        )
    print(f"kept in truth: {all_lines.true_keep_rate:.3f} of {all_lines.n_lines} lines")


def fold_of(store, instance, options):
    settings = SplitSettings(test_instances=(instance,), validation_share=0.2)
    split = split_of([e.instance_id for e in store.entries], settings)
    parts = [
        [store.entries[i] for i in part] for part in (split.train, split.validation, split.test)
    ]
    features = [store.load(part) for part in parts]
    plain = [[PlainOutput(line_chars=f.line_chars, kept=f.kept) for f in p] for p in features]
    methods = {
        name: ([rule(o) for o in plain[1]], [rule(o) for o in plain[2]])
        for name, rule in baselines(plain[0]).items()
    }
    linear = logistic_regression(
        np.concatenate([mean_states(f) for f in features[0]]),
        np.concatenate([f.kept for f in features[0]]),
        l2=100.0,
    )
    methods["linear probe"] = tuple(
        [LineScored(line_scores=linear.probabilities(mean_states(f)), kept=f.kept) for f in part]
        for part in features[1:]
    )
    for name, job in jobs(options, instance, settings).items():
        started = time.monotonic()
        train_head(job, store, say=lambda _: None, now=time.monotonic)
        metrics = json.loads((Path(job.out) / "metrics.json").read_text())
        print(
            f"{instance} {name}: {time.monotonic() - started:.0f} s, "
            f"{metrics['peak_memory_mb']:.0f} MB"
        )
        head = load_head(Path(job.out)).head
        methods[name] = tuple(scored(head, part) for part in features[1:])
    return {name: figures(*both) for name, both in methods.items()}


def figures(validation, test):
    found, _ = figures_of(validation, test, fill_gaps=True)
    return {
        "auc": line_auc(test),
        "truth": [o.kept for o in test],
        "decisions": [o.decisions(found["threshold"], fill_gaps=True) for o in test],
        "at_half": [o.decisions(0.5, fill_gaps=True) for o in test],
    }


def jobs(options, instance, split):
    train = TrainSettings(
        epochs=options.epochs,
        first_lr=options.first_lr,
        last_lr=options.first_lr / 2,
        batch_samples=options.batch,
        seed=options.seed,
    )
    job = TrainJob(
        features=str(options.features),
        out=str(options.out / instance / "head"),
        split=split,
        train=train,
    )
    found = {"head": job}
    if options.variants:
        for loss in ("bce", "corpus_focal", "dice", "tversky"):
            out = str(options.out / instance / loss)
            found[f"head, {loss}"] = replace(job, out=out, train=replace(train, loss=loss))
        found["head, no length"] = replace(
            job,
            out=str(options.out / instance / "no_length"),
            head=HeadSettings(length_embedding=False),
        )
    return found


if __name__ == "__main__":
    main()
