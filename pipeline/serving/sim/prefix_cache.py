"""The prefix cache's arithmetic: which blocks of a prompt were seen before, under one salt.

As in vLLM, only full blocks are kept, a block is found only if all blocks before it are, and at
most prompt - 1 tokens can be hits, since the last one must be computed. Unlike vLLM every salt
has its own capacity, so that a run's counts never depend on what other runs are doing.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MAX_TOTAL_BLOCKS = 200_000
"""Over all salts; beyond it the salt idle for longest is forgotten. About 20 MB."""


class Lookup(NamedTuple):
    """What a prompt found in the cache."""

    hit_tokens: int
    chain: Sequence[int]
    """The hashes of the prompt's full blocks, so that `add` need not compute them again."""


class PrefixCache:
    """Block hashes by salt, the least recently used first."""

    def __init__(self, *, block_size: int, blocks_per_salt: int) -> None:
        self._block_size = block_size
        self._blocks_per_salt = blocks_per_salt
        self._salts: OrderedDict[str, dict[int, None]] = OrderedDict()
        self.blocks = 0
        """Blocks held now."""

    @property
    def usage(self) -> float:
        """Share of the whole capacity in use, from 0 to 1."""
        return min(1.0, self.blocks / MAX_TOTAL_BLOCKS)

    def look_up(self, salt: str, prompt: "array[int]") -> Lookup:
        """Return how many leading tokens of `prompt` are cached; marks them as just used."""
        chain = self._extended(salt, [], prompt)
        store = self._salts.get(salt, {})
        at_most = (len(prompt) - 1) // self._block_size
        found = 0
        while found < at_most and chain[found] in store:
            found += 1
        _use(store, chain[:found])
        return Lookup(found * self._block_size, chain)

    def add(self, salt: str, tokens: "array[int]", known: Sequence[int] = ()) -> None:
        """Keep all full blocks of `tokens` (a prompt with its answer).

        Args:
            known: the chain of a prefix of `tokens`, as `look_up` returned it.
        """
        store = self._salts.setdefault(salt, {})
        self._salts.move_to_end(salt)
        before = len(store)
        _use(store, self._extended(salt, known, tokens))
        while len(store) > self._blocks_per_salt:
            del store[next(iter(store))]
        self.blocks += len(store) - before
        while self.blocks > MAX_TOTAL_BLOCKS and len(self._salts) > 1:
            _, idle = self._salts.popitem(last=False)
            self.blocks -= len(idle)

    def _extended(self, salt: str, known: Sequence[int], tokens: "array[int]") -> list[int]:
        """Return the chain of all full blocks, each hash seeded with the one before."""
        chain = list(known)
        parent = chain[-1] if chain else xxh3_64_intdigest(salt.encode())
        data = memoryview(tokens).cast("B")
        width = self._block_size * tokens.itemsize
        for start in range(len(chain) * width, len(data) - width + 1, width):
            parent = xxh3_64_intdigest(data[start : start + width], parent)
            chain.append(parent)
        return chain


def _use(store: dict[int, None], chain: Sequence[int]) -> None:
    """Move `chain` to the fresh end of `store`.

    The last block first, so that a full cache loses the end of a prompt before its beginning: a
    block whose parents are gone can never be found.
    """
    for block in reversed(chain):
        store.pop(block, None)
        store[block] = None
