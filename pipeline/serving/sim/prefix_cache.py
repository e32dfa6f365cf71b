"""The prefix cache's arithmetic: which blocks of a prompt were seen before, under one salt.

As in vLLM, only full blocks are kept, a block is found only if all blocks before it are, and at
most prompt - 1 tokens can be hits, since the last one must be computed. Unlike vLLM every salt
has its own capacity, so that a run's counts never depend on what other runs are doing.

A salt's blocks are kept as branches of hashes (8 bytes a block; a dict took 100): a prompt that
goes on where an earlier one ended makes that one's branch longer, one that diverges begins a new
branch. A full salt loses the end of the branch used longest ago.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MAX_TOTAL_BLOCKS = 3_000_000
"""Over all salts, 24 MB; beyond it the salt idle for longest is forgotten."""


class Lookup(NamedTuple):
    """What a prompt found in the cache."""

    hit_tokens: int
    chain: "array[int]"
    """The hashes of the prompt's full blocks, so that `add` need not compute them again."""


class _Branch:
    """Blocks that follow one another, from depth `start` on."""

    __slots__ = ("hashes", "parent", "start")

    def __init__(self, parent: "_Branch | None", start: int, hashes: "array[int]") -> None:
        self.parent = parent
        self.start = start
        self.hashes = hashes

    @property
    def end(self) -> int:
        return self.start + len(self.hashes)

    def common(self, chain: Sequence[int]) -> int:
        """Return to which depth `chain` runs along this branch; 0 if it does not.

        A hash stands for all blocks before it, so the first difference is found by bisection.
        """
        low, high = self.start, min(self.end, len(chain))
        if low >= high or self.hashes[0] != chain[low]:
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            if self.hashes[middle - self.start] == chain[middle]:
                low = middle
            else:
                high = middle
        return high


class _Salt:
    """The branches of one salt, the one used longest ago first."""

    def __init__(self) -> None:
        self.branches: list[_Branch] = []
        self.blocks = 0

    def find(self, chain: Sequence[int]) -> tuple[int, _Branch | None]:
        """Return how many blocks of `chain` are here, and in which branch they end."""
        depth, found = 0, None
        for branch in self.branches:
            common = branch.common(chain)
            if common > depth:
                depth, found = common, branch
        return depth, found

    def add(self, chain: "array[int]") -> None:
        depth, branch = self.find(chain)
        rest = chain[depth:]
        if branch is not None and (depth == branch.end or not rest):
            branch.hashes.extend(rest)
            self.branches.remove(branch)
            self.branches.append(branch)
        elif rest:
            self.branches.append(_Branch(branch, depth, rest))
        self.blocks += len(rest)

    def shrink(self, capacity: int) -> None:
        """Drop blocks, from the end of the branch used longest ago, until `capacity` are left."""
        while self.blocks > capacity:
            for branch in self.branches:
                kept = max(
                    (other.start for other in self.branches if other.parent is branch),
                    default=branch.start,
                )
                free = min(branch.end - kept, self.blocks - capacity)
                if free > 0:
                    break
            else:
                return
            del branch.hashes[len(branch.hashes) - free :]
            self.blocks -= free
            if not branch.hashes:
                self.branches.remove(branch)


class PrefixCache:
    """The blocks of every salt."""

    def __init__(self, *, block_size: int, blocks_per_salt: int) -> None:
        self._block_size = block_size
        self._blocks_per_salt = blocks_per_salt
        self._salts: OrderedDict[str, _Salt] = OrderedDict()
        self.blocks = 0
        """Blocks held now."""

    def look_up(self, salt: str, prompt: "array[int]") -> Lookup:
        """Return how many leading tokens of `prompt` are cached."""
        chain = self._extended(salt, array("Q"), prompt)
        held = self._salts.get(salt)
        depth = held.find(chain)[0] if held is not None else 0
        depth = min(depth, max(0, len(prompt) - 1) // self._block_size)
        return Lookup(depth * self._block_size, chain)

    def add(self, salt: str, tokens: "array[int]", known: "array[int] | None" = None) -> None:
        """Keep all full blocks of `tokens` (a prompt with its answer).

        Args:
            salt: whose they are.
            tokens: the whole sequence.
            known: the chain of a prefix of `tokens`, as `look_up` returned it.
        """
        held = self._salts.setdefault(salt, _Salt())
        self._salts.move_to_end(salt)
        before = held.blocks
        held.add(self._extended(salt, known or array("Q"), tokens))
        held.shrink(self._blocks_per_salt)
        self.blocks += held.blocks - before
        while self.blocks > MAX_TOTAL_BLOCKS and len(self._salts) > 1:
            _, idle = self._salts.popitem(last=False)
            self.blocks -= idle.blocks

    def _extended(self, salt: str, known: "array[int]", tokens: "array[int]") -> "array[int]":
        """Return the chain of all full blocks, each hash seeded with the one before."""
        chain = known[:]
        parent = chain[-1] if chain else xxh3_64_intdigest(salt.encode())
        data = memoryview(tokens).cast("B")
        width = self._block_size * tokens.itemsize
        for start in range(len(chain) * width, len(data) - width + 1, width):
            parent = xxh3_64_intdigest(data[start : start + width], parent)
            chain.append(parent)
        return chain
