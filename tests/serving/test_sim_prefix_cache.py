from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.serving.sim.prefix_cache import PrefixCache

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def cached_by_comparison(earlier, prompt, block_size):
    """The same by brute force: the longest common prefix with anything before, in blocks."""
    best = 0
    for tokens in earlier:
        common = 0
        while common < min(len(tokens), len(prompt)) and tokens[common] == prompt[common]:
            common += 1
        best = max(best, common // block_size * block_size)
    return min(best, (len(prompt) - 1) // block_size * block_size) if prompt else 0


@settings(max_examples=300)
@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=12), st.integers(1, 5))
def test_hits_equal_the_longest_common_prefix_in_blocks(calls, block_size):
    cache = PrefixCache(block_size=block_size, blocks_per_salt=10_000)
    earlier = []
    for prompt, answer in calls:
        found = cache.look_up("run", array("I", prompt))
        assert found.hit_tokens == cached_by_comparison(earlier, prompt, block_size)
        cache.add("run", array("I", prompt + answer), found.chain)
        earlier.append(prompt + answer)


def test_another_salt_hits_nothing():
    cache = PrefixCache(block_size=2, blocks_per_salt=100)
    cache.add("a", array("I", range(10)))
    assert cache.look_up("a", array("I", range(10))).hit_tokens == 8
    assert cache.look_up("b", array("I", range(10))).hit_tokens == 0


def test_a_full_cache_forgets_what_was_used_longest_ago_and_the_end_before_the_start():
    cache = PrefixCache(block_size=1, blocks_per_salt=6)
    cache.add("a", array("I", [1, 2, 3, 4]))
    cache.add("a", array("I", [9, 8, 7]))
    assert cache.blocks == 6
    assert cache.look_up("a", array("I", [1, 2, 3, 4, 5])).hit_tokens == 3
    assert cache.look_up("a", array("I", [9, 8, 7, 6])).hit_tokens == 3
