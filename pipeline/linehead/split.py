"""What is trained on, what chooses, and what is only measured.

Test instances are named by the user and touched by nothing before the end. Of the rest a share
validates: whole instances by default, so that no file shown twice in one task is on both sides.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.linehead.settings import SplitSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The three parts, as places in the store's order."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


def split_of(instance_ids: Sequence[str], settings: SplitSettings) -> Split:
    """Return the split of outputs whose instances are `instance_ids`.

    Args:
        instance_ids: One an output.
        settings: How to split. By instance at least one instance validates.

    Raises:
        ValueError: a test instance is unknown, or too little is left to train and validate.
    """
    unknown = sorted(set(settings.test_instances) - set(instance_ids))
    if unknown:
        known = ", ".join(sorted(set(instance_ids)))
        raise ValueError(f"no output is of test instance {unknown[0]}; known: {known}")
    held_out = frozenset(settings.test_instances)
    rest = [i for i, instance in enumerate(instance_ids) if instance not in held_out]
    groups = [instance_ids[i] if settings.by == "instance" else str(i) for i in rest]
    names = sorted(set(groups))
    n_validation = max(1, math.floor(len(names) * settings.validation_share + 0.5))
    if len(names) <= n_validation:
        raise ValueError(
            f"only {len(names)} {settings.by}s are left to train and validate on; label more runs, "
            "or split.by=sample"
        )
    chosen = frozenset(random.Random(settings.seed).sample(names, n_validation))
    pairs = list(zip(rest, groups, strict=True))
    return Split(
        train=tuple(i for i, group in pairs if group not in chosen),
        validation=tuple(i for i, group in pairs if group in chosen),
        test=tuple(i for i, instance in enumerate(instance_ids) if instance in held_out),
    )
