"""Keys at another position, against RoPE itself."""

import pytest

pytest.importorskip("torch", reason="needs PyTorch: `make pruner CPU=1` brings it")

import torch

from pipeline.serving.splice.keys import CpuCache, rotated

pytestmark = pytest.mark.torch

THETA = 10000.0


def rope(plain: torch.Tensor, positions: list[int]) -> torch.Tensor:
    """Return keys as a model makes them, number by number."""
    out, half = plain.clone(), plain.shape[-1] // 2
    for token, position in enumerate(positions):
        for i in range(half):
            angle = torch.tensor(position * THETA ** (-i / half), dtype=torch.float64)
            a, b = plain[token, :, i].double(), plain[token, :, i + half].double()
            out[token, :, i] = a * angle.cos() - b * angle.sin()
            out[token, :, i + half] = b * angle.cos() + a * angle.sin()
    return out


def test_a_rotated_key_is_the_key_of_its_new_position() -> None:
    torch.manual_seed(0)
    plain = torch.randn(5, 2, 32)
    before, after = [900, 901, 1500, 30000, 7], [100, 101, 1600, 3, 7]
    shifts = torch.tensor(after) - torch.tensor(before)
    moved = rotated(rope(plain, before), shifts, THETA)
    torch.testing.assert_close(moved, rope(plain, after), atol=1e-4, rtol=0)


def written(keys, values, key_cache, value_cache, slots, *_isa, **_scales):
    """Write as vLLM's kernel does, with the keys of a block transposed."""
    size, width = key_cache.shape[2:]
    for token, slot in enumerate(slots.tolist()):
        block, place = divmod(slot, size)
        for head in range(key_cache.shape[1]):
            flat = key_cache[block, head].reshape(-1)
            flat[torch.arange(width) * size + place] = keys[token, head]
            key_cache[block, head] = flat.view(size, width)
            value_cache[block, head, place] = values[token, head]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_written_is_read_whatever_the_order_inside_a_block(dtype: torch.dtype) -> None:
    # 160 tokens a block: more than bfloat16 counts exactly.
    caches = {f"layer{n}": torch.zeros(6, 2, 160, 2 * 8, dtype=dtype) for n in range(2)}
    cache = CpuCache(caches, "vec", written)
    torch.manual_seed(0)
    keys, values = (torch.randn(200, 2, 8).to(dtype) for _ in range(2))
    for layer in range(2):
        cache.write(layer, [4, 1, 3], 30, keys + layer, values)
    found = cache.read([4, 1, 3], 50, 230)
    assert found.shape == (2, 2, 180, 2, 8)
    for layer in range(2):
        assert torch.equal(found[layer, 0], (keys + layer)[20:])
        assert torch.equal(found[layer, 1], values[20:])
