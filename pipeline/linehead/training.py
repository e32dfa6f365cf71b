"""`train`: the head on cached features, resumable and the same for the same seed.

See docs/methods.md, SWE-Pruner Pro.

The backbone is frozen and not even loaded. After every epoch the state is on disk; whoever runs
the same job again goes on from there and ends with the same weights as without the stop. The best
epoch is the one with the best line F1 in validation. Needs PyTorch.
"""

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.host.files import read_json, replace_bytes
from pipeline.linehead.checkpoint import CARD, save_head
from pipeline.linehead.feature_store import FeatureEntry, Features, FeatureStore, open_store
from pipeline.linehead.head import LineHead
from pipeline.linehead.lengths import length_bucket
from pipeline.linehead.losses import loss_named
from pipeline.linehead.metrics import metrics_at, plain_metrics
from pipeline.linehead.scoring import scored
from pipeline.linehead.settings import LossName, TrainJob
from pipeline.linehead.split import split_of
from pipeline.linehead.training_report import card_of, write_metrics

STATE = "state.pt"

LOSSES: tuple[LossName, ...] = ("balanced_focal", "bce", "corpus_focal", "dice", "tversky")


@dataclass(slots=True)
class Progress:
    """Where a training stands. All of it is in `state.pt`."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    best_epoch: int = 0
    best_f1: float = -1.0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def run_train_job(job: TrainJob, *, say: Callable[[str], None], now: Callable[[], float]) -> None:
    """Train the head of a job, and its ablations if they are asked for.

    Args:
        job: What is wanted.
        say: Told of every epoch and of the result.
        now: A clock in seconds.

    Raises:
        ValueError: the features cannot be split, or `out` holds another job's training.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    store = open_store(Path(job.features))
    for name, variant in variants(job).items():
        say(f"{name}: {variant.out}")
        train_head(variant, store, say=say, now=now)


def variants(job: TrainJob) -> dict[str, TrainJob]:
    """Return the jobs to run by name: the one asked for, then its ablations if wanted."""
    jobs: dict[str, TrainJob] = {job.train.loss: replace(job, ablations=False)}
    if job.ablations:
        for loss in LOSSES:
            if loss != job.train.loss:
                jobs[loss] = replace(
                    job,
                    out=f"{job.out}/ablations/{loss}",
                    train=replace(job.train, loss=loss),
                    ablations=False,
                )
        if job.head.length_embedding:
            jobs["no_length_embedding"] = replace(
                job,
                out=f"{job.out}/ablations/no_length_embedding",
                head=replace(job.head, length_embedding=False),
                ablations=False,
            )
    return jobs


def train_head(
    job: TrainJob, store: FeatureStore, *, say: Callable[[str], None], now: Callable[[], float]
) -> None:
    """Train one head; a finished one is left as it is."""
    out = Path(job.out)
    identity = _identity(job, store)
    if _is_finished(out, identity):
        say(f"  {out} is finished already")
        return
    split = split_of([e.instance_id for e in store.entries], job.split)
    train = [store.entries[i] for i in split.train]
    validation = [store.entries[i] for i in split.validation]
    torch.manual_seed(job.train.seed)
    head = LineHead(
        store.hidden_size, dropout=job.head.dropout, length_embedding=job.head.length_embedding
    ).to(job.device)
    trainer = _Trainer(job, store, head, n_train=len(train))
    trainer.resume(out / STATE, identity)
    progress, started = trainer.progress, now()
    while progress.epoch < job.train.epochs:
        loss = trainer.epoch(train)
        at_half = metrics_at(
            scored(head, store.each(validation), device=job.device),
            0.5,
            fill_gaps=job.train.fill_gaps,
        )
        trainer.note(loss, at_half.f1)
        progress.history.append(
            {"epoch": progress.epoch, "loss": loss, "validation": plain_metrics(at_half)}
        )
        trainer.save(out / STATE, identity)
        say(f"  epoch {progress.epoch}: loss {loss:.4f}, validation line F1 {at_half.f1:.4f}")
    head.load_state_dict(progress.best_weights)
    outputs = scored(head, store.each(validation), device=job.device)
    card = card_of(job, store, head, split, outputs, best_epoch=progress.best_epoch)
    write_metrics(out, progress.history, outputs, job, wall_s=now() - started)
    save_head(out, head, {**card, "identity": identity})
    (out / STATE).unlink(missing_ok=True)
    say(f"  best epoch {progress.best_epoch}, threshold {card['threshold']}: {out}")


class _Trainer:
    """Head, optimiser and schedule of one training."""

    def __init__(self, job: TrainJob, store: FeatureStore, head: LineHead, *, n_train: int) -> None:
        self._job, self._settings, self._store, self._head = job, job.train, store, head
        self._loss = loss_named(job.train.loss, gamma=job.train.gamma, alpha=job.train.alpha)
        self._optimizer = torch.optim.AdamW(
            head.parameters(), lr=job.train.first_lr, weight_decay=job.train.weight_decay
        )
        self._n_steps = job.train.epochs * math.ceil(n_train / job.train.batch_samples)
        self.progress = Progress()

    def epoch(self, entries: Sequence[FeatureEntry]) -> float:
        """Go once over the training outputs and return the mean loss."""
        # Order and dropout depend on seed and epoch alone, so that a resumed training repeats them.
        torch.manual_seed(self._settings.seed * 100_003 + self.progress.epoch + 1)
        order = torch.randperm(len(entries)).tolist()
        self._head.train()
        losses = []
        for first in range(0, len(order), self._settings.batch_samples):
            places = order[first : first + self._settings.batch_samples]
            batch = self._store.load([entries[i] for i in places])
            losses.append(self._step(batch) * len(batch))
        return sum(losses) / len(entries)

    def _step(self, batch: Sequence[Features]) -> float:
        device = self._job.device
        hidden = torch.cat([b.hidden for b in batch]).to(device)
        targets, buckets, samples = (t.to(device) for t in _per_token(batch))
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(
                self.progress.step,
                self._n_steps,
                first=self._settings.first_lr,
                last=self._settings.last_lr,
                warmup_share=self._settings.warmup_share,
            )
        self._optimizer.zero_grad()
        loss = self._loss(self._head(hidden, buckets), targets, samples, len(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._head.parameters(), self._settings.clip_norm)
        self._optimizer.step()
        self.progress.step += 1
        return float(loss.detach())

    def note(self, loss: float, f1: float) -> None:
        """Count an epoch and keep its weights if they are the best so far."""
        progress = self.progress
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} in epoch {progress.epoch + 1}; look for non-finite features, "
                "or lower train.first_lr"
            )
        progress.epoch += 1
        # NaN: nothing to find in validation. The newest weights are as good as any.
        value = f1 if math.isfinite(f1) else progress.best_f1
        if value > progress.best_f1 or not progress.best_weights or not math.isfinite(f1):
            progress.best_f1, progress.best_epoch = value, progress.epoch
            state = self._head.state_dict()
            progress.best_weights = {k: v.detach().cpu().clone() for k, v in state.items()}

    def save(self, path: Path, identity: str) -> None:
        """Put the whole state on disk."""
        buffer = io.BytesIO()
        progress = self.progress
        torch.save(
            {
                "identity": identity,
                "head": self._head.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "progress": {name: getattr(progress, name) for name in Progress.__slots__},
            },
            buffer,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, buffer.getvalue())

    def resume(self, path: Path, identity: str) -> None:
        """Go on from a state of the same job, if there is one."""
        if not path.exists():
            return
        state = torch.load(path, map_location=self._job.device, weights_only=True)
        if state["identity"] != identity:
            raise ValueError(
                f"{path} is of a training with other features or settings; give another out=FOLDER "
                "or remove this one"
            )
        self._head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])


def learning_rate(
    step: int, n_steps: int, *, first: float, last: float, warmup_share: float
) -> float:
    """Return the rate of step `step` (from 0): linear warm-up to `first`, then cosine to `last`."""
    n_warmup = math.ceil(n_steps * warmup_share)
    if step < n_warmup:
        return first * (step + 1) / n_warmup
    done = (step - n_warmup) / max(1, n_steps - n_warmup - 1)
    return last + (first - last) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def _per_token(batch: Sequence[Features]) -> tuple[Tensor, Tensor, Tensor]:
    """Return target, length bucket and sample of every token of a batch."""
    targets = [torch.from_numpy(b.lines.on_tokens(b.kept)).float() for b in batch]
    sizes = torch.tensor([len(t) for t in targets])
    buckets = torch.tensor([length_bucket(b.entry.n_lines) for b in batch])
    return (
        torch.cat(targets),
        buckets.repeat_interleave(sizes),
        torch.arange(len(batch)).repeat_interleave(sizes),
    )


def _identity(job: TrainJob, store: FeatureStore) -> str:
    """Return what makes two trainings the same: features and settings, wherever they lie."""
    parts = {n: asdict(getattr(job, n)) for n in ("head", "split", "train")}
    return json.dumps({"features_sha256": store.sha256, **parts}, sort_keys=True)


def _is_finished(out: Path, identity: str) -> bool:
    if not (out / CARD).exists():
        return False
    if read_json(out / CARD).get("identity") != identity:
        raise ValueError(
            f"{out} holds a head trained with other features or settings; give another out=FOLDER"
        )
    return True
