"""Random numbers that depend on a place in the trajectory and not on when they are drawn.

A policy is called many times over a growing trajectory and must always decide the same about the
same turn, so every number is drawn from the run's seed and the place it is for. What a share
deletes is also deleted at every larger share, since both compare with the same number.
"""

import hashlib
import random
from functools import lru_cache


@lru_cache(maxsize=65_536)
def uniform(seed: int, *place: int | str) -> float:
    """Return a number in [0, 1) that depends on seed and place alone."""
    return int.from_bytes(_digest(seed, place)[:7], "big") / (1 << 56)


def ranks(seed: int, n: int, *place: int | str) -> list[int]:
    """Return the numbers 0 to n - 1 in random order; a shorter list is not a prefix of a longer."""
    order = list(range(n))
    random.Random(_digest(seed, place)).shuffle(order)
    return order


def _digest(seed: int, place: tuple[int | str, ...]) -> bytes:
    return hashlib.blake2b(repr((seed, *place)).encode(), digest_size=16).digest()
