"""What the simulated agent prunes in a cleanup turn: an imperfect rule, as models are imperfect."""

from collections.abc import Sequence
from random import Random

from pipeline.serving.sim.recipe import Recipe
from pipeline.serving.sim.sight import read_of
from pipeline.serving.sim.view import Listed

P_NOTHING = 0.06
"""Chance that everything is kept, since no amount is required."""
P_PRUNE_UNNEEDED = 0.8
P_PRUNE_NEEDED = 0.1
"""Chance of pruning what a later step needs; it must then be read again."""


def chosen_ids(
    listed: Sequence[Listed], recipe: Recipe, *, next_step: int, rng: Random
) -> list[int]:
    """Return the ids to prune, of those listed, before plan step `next_step` (from 1) begins."""
    if rng.random() < P_NOTHING:
        return []
    chosen = []
    for item in listed:
        needed = _is_needed(item.description, recipe, next_step)
        if rng.random() < (P_PRUNE_NEEDED if needed else P_PRUNE_UNNEEDED):
            chosen.append(item.observation_id)
    return chosen


def _is_needed(description: str, recipe: Recipe, next_step: int) -> bool:
    """Return whether a later step needs lines that the listed command printed.

    The listing may shorten a command; then naming the file is enough.
    """
    _, _, after_dot = description.rpartition(" · ")
    command = after_dot.rpartition(" tok: ")[2].strip().strip("`")
    read = read_of(command)
    for step in recipe.steps[max(0, next_step - 1) :]:
        for need in step.needs:
            if read.overlaps(need) if read is not None else need.path in description:
                return True
    return False
