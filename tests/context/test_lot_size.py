"""`lot_size`: outputs gather until a cut of the prefix is worth it (docs/methods.md, Lot size)."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.accounting.break_even import Prices, lot_size
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands
from tests.context.scripts import Ran, read, rounds, set_plan

PRICES = Prices(input=1.0, cached=0.1, output=0.0)


def cost_a_call(lot: float, prices: Prices, again: float, growth: float, cold: float) -> float:
    """The slow reference: what holding a lot and cutting once a lot cost a call on average.

    Half a lot is held on average. Each held token costs a read, or a write after a cold gap; a cut
    turns the reads of what is sent again into writes, except after a cold gap, where they are
    writes anyway.
    """
    held = lot / 2 * (prices.cached * (1 - cold) + prices.written * cold)
    cut = again * (prices.written - prices.cached) * (1 - cold)
    return held + cut * growth / lot


@given(
    cached=st.floats(0.01, 0.9),
    write=st.floats(1.0, 2.0),
    again=st.floats(100, 1e5),
    growth=st.floats(10, 5e3),
    cold=st.floats(0, 0.9),
)
def test_no_other_lot_is_cheaper(
    cached: float, write: float, again: float, growth: float, cold: float
) -> None:
    prices = Prices(input=1.0, cached=cached, output=5.0, write=write)
    lot = lot_size(prices, again_tokens=again, growth_tokens=growth, cold_share=cold)
    best = cost_a_call(lot, prices, again, growth, cold)
    for factor in (0.1, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 10):
        assert cost_a_call(lot * factor, prices, again, growth, cold) >= best * (1 - 1e-9)


def test_a_run_of_mini_has_lots_of_9500_tokens_at_a_tenth_and_20k_at_a_fortieth() -> None:
    sizes = {"again_tokens": 10_000, "growth_tokens": 500}
    assert lot_size(PRICES, **sizes) == pytest.approx(9_487, abs=1)
    assert lot_size(replace(PRICES, cached=0.025), **sizes) == pytest.approx(19_748, abs=1)


def test_without_a_cache_every_lot_is_worth_a_cut_and_with_free_reads_none_is() -> None:
    assert lot_size(replace(PRICES, cached=1.0), again_tokens=100, growth_tokens=10) == 0
    assert lot_size(PRICES, again_tokens=100, growth_tokens=10, cold_share=1.0) == 0
    assert lot_size(replace(PRICES, cached=0), again_tokens=100, growth_tokens=10) == math.inf


def run_of(n: int, **parameters: object) -> Ran:
    return ran(arm("lot_size", **parameters), rounds(*[read(f"{k}.py", 104) for k in range(n)]))


def test_outputs_go_together_once_they_hold_the_lot() -> None:
    """Each read holds 104 words, of which 100 are saved, and its call holds 4."""

    def is_a_lot(n: int) -> bool:
        saved = 100 * (n - 1)
        again = 104 * n + 4 * (n - 1) - saved
        return saved >= lot_size(PRICES, again_tokens=again, growth_tokens=104)

    first = next(n for n in range(2, 40) if is_a_lot(n))
    (cut,) = [m for m in run_of(first).moments if m.new]
    assert cut.n_turns == first
    assert len(cut.new) == first - 1 > 5


def test_dearer_reads_make_smaller_lots() -> None:
    sizes = [
        len(next(m for m in run_of(40, cached_price=price).moments if m.new).new)
        for price in (0.05, 0.1, 0.5)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_a_cold_cache_is_a_moment_to_prune_whatever_has_gathered() -> None:
    reads = [read("a.py", 104), replace(read("b.py"), waited_s=301.0)]
    assert removed_commands(ran(arm("lot_size", ttl_s=300.0), rounds(*reads)), "lot") == [
        "cat a.py"
    ]
    assert removed_commands(ran(arm("lot_size"), rounds(*reads)), "lot") == []


def test_the_newest_turn_the_plan_and_short_outputs_stay() -> None:
    script = rounds(set_plan(2), read("a.py", 104), read("short.py", 2), read("b.py", 104))
    run = ran(arm("lot_size", cached_price=1.0), script)
    assert removed_commands(run, "lot") == ["cat a.py"]
