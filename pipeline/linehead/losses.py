"""What training minimises, and its four ablations (docs/methods.md, SWE-Pruner Pro).

All take logits and targets of a batch's tokens and the sample that each token is of. What the
paper leaves open is said where it is decided.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from pipeline.linehead.settings import LossName

Loss = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""(logits, targets in {0, 1}, sample of each token, number of samples) -> scalar."""


def loss_named(name: LossName, *, gamma: float, alpha: float | None = None) -> Loss:
    """Return the loss called `name`; `gamma` and `alpha` are those of the focal ones."""
    losses: dict[LossName, Loss] = {
        "balanced_focal": partial(balanced_focal, gamma=gamma, alpha=alpha),
        "bce": bce,
        "corpus_focal": partial(corpus_focal, gamma=gamma, alpha=alpha),
        "dice": partial(tversky, missed=0.5, extra=0.5),
        "tversky": partial(tversky, missed=0.7, extra=0.3),
    }
    return losses[name]


def focal_terms(
    logits: Tensor, targets: Tensor, *, gamma: float, alpha: float | None = None
) -> Tensor:
    """Return the focal cross-entropy of each token: w * (1 - p of the truth) ** gamma * BCE.

    The weight w is `alpha` for keep tokens and 1 - `alpha` for prune tokens; without `alpha` it
    is 1 for both (Lin et al. 2017, equations 4 and 5).
    """
    cross_entropy = binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_truth = torch.exp(-cross_entropy)
    terms = (1 - p_truth) ** gamma * cross_entropy
    return terms if alpha is None else torch.where(targets > 0.5, alpha, 1 - alpha) * terms


def balanced_focal(
    logits: Tensor,
    targets: Tensor,
    samples: Tensor,
    n_samples: int,
    *,
    gamma: float,
    alpha: float | None = None,
) -> Tensor:
    """Return the mean over samples of the mean of the class means.

    Within a sample, keep and prune tokens weigh the same, however many there are; a sample with
    one class uses that class alone.
    """
    terms = focal_terms(logits, targets, gamma=gamma, alpha=alpha)
    classes = torch.stack((targets, 1 - targets))
    totals = terms.new_zeros(2, n_samples).index_add(1, samples, classes * terms)
    counts = terms.new_zeros(2, n_samples).index_add(1, samples, classes)
    means = totals / counts.clamp(min=1)
    n_classes = (counts > 0).sum(dim=0).clamp(min=1)
    return (means.sum(dim=0) / n_classes).mean()


def bce(logits: Tensor, targets: Tensor, samples: Tensor, n_samples: int) -> Tensor:  # noqa: ARG001
    """Return the cross-entropy, averaged over all tokens of the batch."""
    return binary_cross_entropy_with_logits(logits, targets)


def corpus_focal(
    logits: Tensor,
    targets: Tensor,
    samples: Tensor,  # noqa: ARG001
    n_samples: int,  # noqa: ARG001
    *,
    gamma: float,
    alpha: float | None = None,
) -> Tensor:
    """Return the focal loss averaged over all tokens, whatever their sample or class."""
    return focal_terms(logits, targets, gamma=gamma, alpha=alpha).mean()


def tversky(
    logits: Tensor,
    targets: Tensor,
    samples: Tensor,
    n_samples: int,
    *,
    missed: float,
    extra: float,
) -> Tensor:
    """Return 1 - the soft Tversky index, a sample at a time, averaged; Dice at (0.5, 0.5).

    Args:
        logits: One a token.
        targets: 1 for keep.
        samples: Sample of each token.
        n_samples: How many there are.
        missed: Weight of keep tokens scored low. That the paper's 0.7 is this one is our reading:
            a lost line costs more than a kept one.
        extra: Weight of prune tokens scored high.
    """
    p = torch.sigmoid(logits)

    def per_sample(values: Tensor) -> Tensor:
        return values.new_zeros(n_samples).index_add(0, samples, values)

    hits = per_sample(p * targets)
    index = (hits + 1) / (
        hits + missed * per_sample((1 - p) * targets) + extra * per_sample(p * (1 - targets)) + 1
    )
    return (1 - index).mean()
