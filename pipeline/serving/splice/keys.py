"""Keys and values as tensors: rotation to another position, and vLLM's CPU cache read and written.

Keys are cached after RoPE (halves, unscaled), so a key of position p becomes one of p + d by a
rotation through d. Inside a block, CPU kernels store keys in an order of their own, which depends
on the instruction set; it is found by having the kernel itself write known numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch


def rotated(keys: Any, shifts: Any, theta: float) -> Any:
    """Return keys moved by `shifts` positions.

    Args:
        keys: shape (tokens, heads, head size), after RoPE.
        shifts: how far each token moves, shape (tokens,).
        theta: base of the model's frequencies.
    """
    half = keys.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = (shifts.to(torch.float64)[:, None] * frequencies)[:, None, :]
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = keys[..., :half].float(), keys[..., half:].float()
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(keys.dtype)


class CpuCache:
    """The paged caches of all layers of a model on CPU, by token."""

    def __init__(self, caches: dict[str, Any], isa: str, reshape_and_cache: Any) -> None:
        """Find the order inside a block.

        Args:
            caches: by layer, shape (blocks, heads, block size, 2 x head size).
            isa: instruction set that the attention layers use.
            reshape_and_cache: vLLM's kernel that writes keys and values to slots.

        Raises:
            ValueError: the kernel's order is no permutation within a block.
        """
        self.caches = list(caches.values())
        self._isa, self._kernel = isa, reshape_and_cache
        one = self.caches[0]
        self.block_size, self.head_size = one.shape[2], one.shape[3] // 2
        self._orders = self._probed()

    def read(self, blocks: Sequence[int], lo: int, hi: int) -> Any:
        """Return tokens lo to hi of a request, shape (layers, 2, tokens, heads, head size)."""
        size, width = self.block_size, self.head_size
        used = torch.tensor(blocks[lo // size : -(-hi // size)])
        skipped = lo - lo % size
        layers = []
        for cache in self.caches:
            heads = cache.shape[1]
            both = []
            for half, order in zip(self._halves(cache), self._orders, strict=True):
                inside = half[used].reshape(len(used), heads, size * width)[..., order]
                tokens = inside.view(len(used), heads, size, width).permute(0, 2, 1, 3)
                both.append(tokens.reshape(-1, heads, width)[lo - skipped : hi - skipped])
            layers.append(torch.stack(both))
        return torch.stack(layers)

    def write(self, layer: int, blocks: Sequence[int], lo: int, keys: Any, values: Any) -> None:
        """Put keys and values of a request's tokens from `lo` on into its blocks."""
        places = torch.arange(lo, lo + len(keys))
        slots = torch.tensor(blocks)[places // self.block_size] * self.block_size
        self._store(
            keys, values, self._halves(self.caches[layer]), slots + places % self.block_size
        )

    def _store(self, keys: Any, values: Any, halves: Any, slots: Any) -> None:
        self._kernel(
            keys.contiguous(), values.contiguous(), *halves, slots, self._isa,
            k_scale=1.0, v_scale=1.0, kv_cache_dtype="auto",
        )  # fmt: skip

    def _halves(self, cache: Any) -> Any:
        blocks, heads, size, _ = cache.shape
        return cache.view(blocks, heads, size * 2, self.head_size).chunk(2, dim=2)

    def _probed(self) -> list[Any]:
        """Return for keys and values where in a block each number of each token lies."""
        one = self.caches[0]
        size, width, heads = self.block_size, self.head_size, one.shape[1]
        scratch = torch.zeros((1, *one.shape[1:]), dtype=one.dtype)
        halves, slots = self._halves(scratch), torch.arange(size)
        found = [torch.zeros(size * width, dtype=torch.long) for _ in halves]
        # bfloat16 holds whole numbers to 256 exactly: rows and columns are told apart in turn.
        for axis, factor in ((0, width), (1, 1)):
            for low, scale in ((True, 1), (False, 128)):
                grid = torch.arange((size, width)[axis])
                part = grid % 128 if low else grid // 128
                shape = (size, 1, 1) if axis == 0 else (1, 1, width)
                numbers = part.to(one.dtype).view(shape).expand(size, heads, width).contiguous()
                self._store(numbers, numbers, halves, slots)
                for order, half in zip(found, halves, strict=True):
                    order += half[0, 0].reshape(-1).long() * scale * factor
        if any(sorted(order.tolist()) != list(range(size * width)) for order in found):
            raise ValueError(f"the CPU cache's order ({self._isa}) is not one within a block")
        return [torch.argsort(order) for order in found]
