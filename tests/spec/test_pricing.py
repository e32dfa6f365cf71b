"""Price lists: what a call costs, written out by hand, and what a file may say."""

from pathlib import Path

import pytest
import yaml

from pipeline.spec.pricing import PriceList, pricing_from

PRICING = Path(__file__).parents[2] / "conf/pricing"


def cost(prices: PriceList, prompt: int, cached: int, completion: int, **idle: float) -> float:
    return prices.call_cost(
        prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion, **idle
    )


def test_hits_writes_and_output_each_have_their_price():
    plain = PriceList(name="x", input=2.0, cached=0.5, output=10.0)
    assert cost(plain, 100, 60, 3) == 60 * 0.5 + 40 * 2 + 3 * 10
    dear = PriceList(name="x", input=2.0, cached=0.5, output=10.0, write=3.0)
    assert cost(dear, 100, 60, 0) == 60 * 0.5 + 40 * 3


def test_what_is_too_short_for_the_cache_is_neither_found_nor_written():
    dear = PriceList(name="x", input=2.0, cached=0.5, output=10.0, write=3.0, min_prefix=64)
    assert cost(dear, 63, 0, 0) == 63 * 2
    assert cost(dear, 100, 63, 0) == 100 * 3
    assert cost(dear, 100, 64, 0) == 64 * 0.5 + 36 * 3


def test_a_prefix_that_was_idle_for_longer_than_its_time_is_written_again():
    prices = PriceList(name="x", cached=0.1, output=5.0, write=1.25, ttl_s=300)
    assert cost(prices, 100, 80, 0, idle_s=301) == 125
    assert cost(prices, 100, 80, 0, idle_s=300) == cost(prices, 100, 80, 0) == 8 + 25


def test_more_cached_than_prompt_tokens_cost_no_less_than_all_of_them():
    assert cost(PriceList(name="x", cached=0.1), 100, 1000, 0) == pytest.approx(10)


def test_flat_is_where_a_cache_makes_no_difference():
    assert PriceList(name="x").is_flat
    assert not PriceList(name="x", write=1.25).is_flat
    assert not PriceList(name="x", cached=0.1).is_flat


def test_prices_are_of_one_token_whatever_the_file_counts_in():
    pricing = pricing_from(
        {"per_tokens": 1000, "lists": {"a": {"input": 2, "cached": 0.2, "output": 8, "write": 3}}}
    )
    assert pricing.primary == PriceList(
        name="a", input=0.002, cached=0.0002, output=0.008, write=0.003
    )


def test_a_pricing_without_lists_of_that_name_has_a_flat_and_a_caching_one():
    pricing = pricing_from({"lists": {"a": {"input": 2, "cached": 0.5, "output": 8, "write": 3}}})
    assert pricing.caching.name == "a"
    assert pricing.flat == PriceList(name="flat", input=2, cached=2, output=8)
    assert pricing_from({}).caching.cached == 0.1


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"input": 2, "cached": 2}, "price list x has no output"),
        ({"input": -2, "cached": 1, "output": 1}, "input must be numbers of zero or more"),
        ({"input": ".nan", "cached": 1, "output": 1}, "input must be numbers"),
        ({"input": 2, "cached": 1, "output": 1, "writ": 3}, "has writ; known keys: input"),
    ],
)
def test_a_list_that_cannot_be_used_says_why(prices: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        pricing_from(yaml.safe_load(yaml.safe_dump({"lists": {"x": prices}}).replace("'", "")))


@pytest.mark.parametrize("path", sorted(PRICING.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_pricing_is_named_like_its_file_dated_and_complete(path: Path):
    pricing = pricing_from(yaml.safe_load(path.read_text()))
    assert pricing.name == path.stem
    assert pricing.as_of[:2] == "20"
    assert all(p.cached <= p.input <= p.written for p in pricing.lists.values())


def test_the_five_kinds_of_provider_are_there():
    shipped = {path.stem for path in PRICING.glob("*.yaml")}
    assert {"anthropic", "openai", "deepseek", "qwen", "self_hosted"} <= shipped
    lists = pricing_from(yaml.safe_load((PRICING / "anthropic.yaml").read_text())).lists
    times = {p.ttl_s: p.written / p.input for p in lists.values()}
    assert times == pytest.approx({300.0: 1.25, 3600.0: 2.0})
