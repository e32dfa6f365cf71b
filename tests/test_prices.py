"""`python -m pipeline.prices`: a public price file becomes a pricing."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from pipeline.prices import main
from pipeline.spec.pricing import PriceList, pricing_from

MODELS = {
    "maker-5": {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 2e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1e-07,
        "cache_creation_input_token_cost": 2.5e-06,
        "cache_creation_input_token_cost_above_1hr": 4e-06,
        "prompt_cache_min_tokens": 512,
        "input_cost_per_token_above_200k_tokens": 4e-06,
    },
    "seek/v4": {
        "input_cost_per_token": 3e-07,
        "output_cost_per_token": 1.2e-06,
        "cache_read_input_token_cost": 6e-09,
        "cache_creation_input_token_cost": 0.0,
    },
    "no-cache": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
    "image": {"output_cost_per_image": 1},
}


@pytest.fixture
def price_file(tmp_path: Path) -> Path:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(MODELS))
    return path


def test_two_write_prices_make_two_lists(price_file: Path, tmp_path: Path):
    out = tmp_path / "mine.yaml"
    assert main([str(price_file), "--models", "maker-5", "seek/v4", "--out", str(out)]) == 0
    lists = pricing_from(yaml.safe_load(out.read_text())).lists
    short = PriceList(
        name="maker_5_5m",
        input=2e-06,
        cached=1e-07,
        output=1e-05,
        write=2.5e-06,
        min_prefix=512,
        ttl_s=300,
    )
    assert asdict(lists["maker_5_5m"]) == pytest.approx(asdict(short))
    assert (lists["maker_5_1h"].write, lists["maker_5_1h"].ttl_s) == (4e-06, 3600)
    # A write price of 0 stands for "as the input": a cache is not free to fill.
    v4 = PriceList(name="v4", input=3e-07, cached=6e-09, output=1.2e-06, write=3e-07)
    assert asdict(lists["v4"]) == pytest.approx(asdict(v4))
    assert "above 200k tokens cost more" in out.read_text()


def test_a_model_without_a_cached_price_is_billed_in_full_and_says_so(
    price_file: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(price_file), "--models", "no-cache", "--as-of", "2026-11-01"]) == 0
    text = capsys.readouterr().out
    assert pricing_from(yaml.safe_load(text)).primary.cached == 1e-06
    assert "2026-11-01" in text
    assert "billed in full" in text


def test_without_models_those_that_can_be_priced_are_listed(
    price_file: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(price_file)]) == 0
    assert capsys.readouterr().out.split() == ["maker-5", "no-cache", "seek/v4"]


def test_an_unknown_model_is_named_with_what_is_near(
    price_file: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(price_file), "--models", "maker"]) == 2
    assert "no prices for maker; similar names: maker-5" in capsys.readouterr().err
