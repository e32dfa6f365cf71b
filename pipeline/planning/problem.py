"""A reason not to launch, and what to do about it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason: the key that it is about, and what to say instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


WORDS = "WORDS"
"""Stands in a message for the words of this very launch."""


def runnable(message: str, words: Sequence[str], *, on_slurm: bool) -> str:
    """Return a message whose command can be copied: with this launch's words, as a job or not."""
    said = message.replace(f"--sweep {WORDS}", f"--sweep {shlex.join(words)}")
    if on_slurm:
        for what in ("images", "model"):
            said = said.replace(
                f"python -m pipeline.stage {what} ", f"sbatch slurm/stage.sbatch {what} "
            )
    return said
