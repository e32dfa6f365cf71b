"""Costs by hand, the cleanup's marginal price, break-evens, and caches that stay unknown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.contrasts import Draws
from pipeline.analysis.cost import ArmBill, bills, price_sweep, usage_of
from pipeline.analysis.outcomes import Group, groups_of
from pipeline.analysis.pricing import PriceList, Pricing, pricing_from
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.analysis.tables import open_tables
from pipeline.records.columns import CALLS
from pipeline.records.layout import Layout
from pipeline.records.schema import table_of
from pipeline.spec.analysis import AnalysisPlan

DRAWS = Draws(AnalysisPlan(resamples=200))
CACHING = PriceList(name="caching", cached=0.1, output=5.0)


def call(run: str, index: int, kind: str, prompt: int, completion: int, lcp: int | None) -> Any:
    return {
        "run_id": run,
        "call_index": index,
        "step_index": index + 1,
        "kind": kind,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "lcp_tokens": lcp,
        "lcp_block_tokens": None if lcp is None else lcp // 16 * 16,
        "cached_tokens": None,
        "new_tokens": None if lcp is None else prompt - lcp,
        "rebilled_tokens": None if lcp is None else 0,
    }


@pytest.fixture
def two_arms(tmp_path: Path) -> Path:
    """One instance, two arms, calls written by hand."""
    arms = {"full_history": ArmTruth(), "plan_prune": ArmTruth(policy="plan_prune", cleanups=1)}
    write_sweep(SyntheticSweep(n_instances=1, seeds=(0,), arms=arms), tmp_path)
    layout = Layout(tmp_path)
    runs = {
        row["arm"]: row["run_id"]
        for row in pq.read_table(layout.table_file("runs"), columns=["arm", "run_id"]).to_pylist()
    }
    full, pruned = runs["full_history"], runs["plan_prune"]
    rows = [
        call(full, 0, "step", 100, 10, 0),
        call(full, 1, "step", 200, 10, 110),
        call(pruned, 0, "step", 100, 10, 0),
        # The cleanup sees the newest output (80 tokens more) and leaves it in the cache.
        call(pruned, 1, "cleanup", 190, 20, 110),
        call(pruned, 2, "step", 200, 10, 190),
    ]
    for path in layout.table("calls").glob("*.parquet"):
        path.unlink()
    pq.write_table(table_of(CALLS, rows), layout.table_part("calls", "by-hand"))
    return tmp_path


def group_and_bills(
    results: Path, prices: PriceList, view: str
) -> tuple[Group, dict[str, ArmBill]]:
    with open_tables(results) as connection:
        (group,) = groups_of(connection)
        usages = usage_of(connection, group, min_prefix=prices.min_prefix)
        found = bills(usages, group, prices, view=view, reference="full_history", draws=DRAWS)
    return group, {b.arm: b for b in found}


def test_flat_prices_bill_every_input_token_alike(two_arms: Path):
    _, found = group_and_bills(two_arms, PriceList(name="flat"), "exact")
    assert found["full_history"].total == 300 + 5 * 20
    assert found["plan_prune"].total == 490 + 5 * 40


def test_caching_prices_bill_the_shared_prefix_at_its_own_price(two_arms: Path):
    _, found = group_and_bills(two_arms, CACHING, "exact")
    full = found["full_history"]
    assert full.total == pytest.approx(0.1 * 110 + 190 + 5 * 20)
    assert (full.cached, full.new, full.output) == pytest.approx((11, 190, 100))
    assert full.auxiliary == 0


def test_the_parts_of_a_bill_add_up_to_it(pristine: Path):
    for view in ("exact", "block", "reported"):
        _, found = group_and_bills(pristine, CACHING, view)
        for bill in found.values():
            parts = bill.cached + bill.new + bill.rebilled + bill.output + bill.auxiliary
            assert parts == pytest.approx(bill.total)


def test_the_cleanups_marginal_cost_credits_what_it_prepaid(two_arms: Path):
    """Without it, the next step would have shared 110 tokens and not 190."""
    _, found = group_and_bills(two_arms, CACHING, "exact")
    bill = found["plan_prune"]
    gross = 0.1 * 110 + 80 + 5 * 20
    assert bill.cleanup_gross == pytest.approx(gross)
    assert bill.cleanup_marginal == pytest.approx(gross - 0.9 * (190 - 110))
    without = 0.1 * 110 + (100 + 200 - 110) + 5 * 20
    assert bill.total - bill.cleanup_marginal == pytest.approx(without)


def test_a_cache_that_nobody_reported_leaves_the_cost_unknown(two_arms: Path):
    _, found = group_and_bills(two_arms, CACHING, "reported")
    assert np.isnan([b.total for b in found.values()]).all()


def test_short_prefixes_are_billed_in_full_where_a_list_says_so(two_arms: Path):
    _, found = group_and_bills(two_arms, replace(CACHING, min_prefix=128), "exact")
    assert found["full_history"].total == 300 + 5 * 20
    assert found["plan_prune"].total == pytest.approx(0.1 * 190 + 300 + 5 * 40)


def test_the_break_even_is_where_both_arms_cost_the_same(pristine: Path):
    pricing = pricing_from({})
    with open_tables(pristine) as connection:
        (group,) = groups_of(connection)
        usages = usage_of(connection, group)
        sweeps = price_sweep(
            usages, group, pricing, view="exact", reference="full_history", draws=DRAWS
        )
        sweep = next(s for s in sweeps if s.arm == "observation_mask")
        assert sweep.break_even is not None
        at_it = replace(CACHING, cached=sweep.break_even)
        found = bills(usages, group, at_it, view="exact", reference="full_history", draws=DRAWS)
    ratio = next(b.ratio for b in found if b.arm == "observation_mask")
    assert ratio is not None
    assert ratio.value == pytest.approx(1)
    assert sweep.pays == "above"
    assert next(s for s in sweeps if s.arm == "sham_cleanup").pays == "never"


def test_nothing_solved_costs_infinitely_much_a_solved_task(tmp_path: Path):
    write_sweep(SyntheticSweep(n_instances=4, seeds=(0,), solve_rate=1e-9), tmp_path)
    _, found = group_and_bills(tmp_path, CACHING, "exact")
    assert {b.per_solved for b in found.values()} == {float("inf")}


def test_price_lists_are_read_per_token_and_bad_ones_refused():
    pricing = pricing_from(
        {"per_tokens": 1_000_000, "lists": {"x": {"input": 3, "cached": 0.3, "output": 15}}}
    )
    assert pricing.primary.output == pytest.approx(15e-6)
    with pytest.raises(ValueError, match="has no cached"):
        pricing_from({"lists": {"x": {"input": 3, "output": 15}}})
    with pytest.raises(ValueError, match="negative"):
        pricing_from({"lists": {"x": {"input": -3, "cached": 1, "output": 15}}})


def test_the_shipped_price_lists_are_dated_and_complete():
    import yaml

    folder = Path(__file__).parents[2] / "conf/pricing"
    for path in folder.glob("*.yaml"):
        pricing: Pricing = pricing_from(yaml.safe_load(path.read_text()))
        assert pricing.as_of[:2] == "20"
        assert pricing.lists


def test_missing_calls_leave_nothing_to_price(sweep: Path):
    from pipeline.analysis.study import opened_study

    for path in Layout(sweep).table("calls").glob("*.parquet"):
        path.unlink()
    connection, study = opened_study(sweep)
    connection.close()
    assert study.groups[0].bills == []
    assert isinstance(study.behaviour.refetches, pa.Table)
