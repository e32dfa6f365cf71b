"""Costs by hand, the cleanup's marginal price, break-evens, and caches that stay unknown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.analysis.contrasts import Draws
from pipeline.analysis.cost import ArmBill, bills, price_sweep, usage_of
from pipeline.analysis.counts import count_problems
from pipeline.analysis.outcomes import Group, groups_of
from pipeline.analysis.study import opened_study
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.analysis.tables import open_tables
from pipeline.analysis.wording import ratio as ratio_words
from pipeline.analysis.wording import verdict
from pipeline.records.columns import CALLS
from pipeline.records.layout import Layout
from pipeline.records.schema import table_of
from pipeline.spec.analysis import AnalysisPlan
from pipeline.spec.pricing import PriceList, pricing_from

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
        usages = usage_of(connection, group, prices)
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


def test_nothing_solved_leaves_the_cost_of_a_solved_task_undefined(tmp_path: Path):
    """Infinity once went into tables and pages."""
    write_sweep(SyntheticSweep(n_instances=4, seeds=(0,), solve_rate=1e-9), tmp_path)
    _, found = group_and_bills(tmp_path, CACHING, "exact")
    assert np.isnan([b.per_solved for b in found.values()]).all()


def test_missing_calls_leave_nothing_to_price(sweep: Path):
    for path in Layout(sweep).table("calls").glob("*.parquet"):
        path.unlink()
    connection, study = opened_study(sweep)
    connection.close()
    assert not study.groups[0].bills
    assert isinstance(study.behaviour.refetches, pa.Table)


def rewritten(results: Path, change: Any) -> None:
    """Change every row of the calls table by hand."""
    (path,) = Layout(results).table("calls").glob("*.parquet")
    rows = [change(row) for row in pq.read_table(path).to_pylist()]
    pq.write_table(table_of(CALLS, rows), path)


def test_a_call_of_unknown_cache_leaves_the_sums_of_the_others_and_is_counted(two_arms: Path):
    rewritten(two_arms, lambda r: r if r["prompt_tokens"] > 100 else {**r, "lcp_tokens": None})
    _, found = group_and_bills(two_arms, CACHING, "exact")
    full = found["full_history"]
    assert full.total == pytest.approx(0.1 * 110 + 90 + 5 * 10)
    assert (full.known_calls, full.n_calls) == (1, 2)


def test_more_cached_than_prompt_tokens_never_make_a_negative_price(two_arms: Path):
    rewritten(two_arms, lambda r: {**r, "lcp_tokens": 10_000})
    _, found = group_and_bills(two_arms, CACHING, "exact")
    assert found["full_history"].total == pytest.approx(0.1 * 300 + 5 * 20)


def test_impossible_and_unknown_counts_are_named_and_refuse_nothing(two_arms: Path):
    rewritten(two_arms, lambda r: {**r, "cached_tokens": 500} if r["call_index"] else r)
    with open_tables(two_arms) as connection:
        (found,) = count_problems(connection)
    assert found.code == "impossible_counts"
    assert "3 calls of 2 runs" in found.sentence
    assert not found.blocks
    rewritten(
        two_arms,
        lambda r: {**r, "cached_tokens": None, "prompt_tokens": r["call_index"] or None},
    )
    with open_tables(two_arms) as connection:
        codes = {problem.code: problem.sentence for problem in count_problems(connection)}
    assert "2 of 5 answered calls without token counts, in 2 runs" in codes["unknown_counts"]


def test_writes_and_time_to_live_are_billed_call_by_call(two_arms: Path):
    times = iter([0.0, 10.0, 0.0, 10.0, 1000.0])
    rewritten(two_arms, lambda r: {**r, "started_at": next(times), "latency_s": 2.0})
    dear = replace(CACHING, write=1.25, min_prefix=150, ttl_s=300.0)
    _, found = group_and_bills(two_arms, dear, "exact")
    # 100 tokens are too short to be written, 110 of 200 too short to be found.
    assert found["full_history"].total == pytest.approx(100 + 1.25 * 200 + 5 * 20)
    # The last call comes 988 s after the cleanup's end: 190 tokens are cold.
    assert found["plan_prune"].total == pytest.approx(100 + 1.25 * 190 + 1.25 * 200 + 5 * 40)


def test_the_prefix_is_called_exact_only_where_token_ids_showed_it(two_arms: Path):
    _, found = group_and_bills(two_arms, CACHING, "exact")
    assert {b.view for b in found.values()} == {"estimated"}
    rewritten(two_arms, lambda r: {**r, "lcp_exact": True})
    _, found = group_and_bills(two_arms, CACHING, "exact")
    assert {b.view for b in found.values()} == {"exact"}


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_sums_in_sql_cost_what_every_call_costs_by_itself(two_arms: Path, data: st.DataObject):
    """The slow reference: docs/methods.md, Cost, one call at a time."""
    tokens = st.one_of(st.none(), st.integers(0, 300))
    prices = PriceList(
        name="drawn",
        cached=data.draw(st.sampled_from([0.02, 0.1, 1.0])),
        write=data.draw(st.sampled_from([None, 1.25, 2.0])),
        min_prefix=data.draw(st.sampled_from([0, 64, 200])),
        ttl_s=data.draw(st.sampled_from([None, 5.0])),
    )

    def drawn(row: dict[str, Any]) -> dict[str, Any]:
        start = row["call_index"] * 10.0
        latency = data.draw(st.sampled_from([1.0, 6.0]))
        return {**row, "lcp_tokens": data.draw(tokens), "started_at": start, "latency_s": latency}

    rewritten(two_arms, drawn)
    _, found = group_and_bills(two_arms, prices, "exact")
    (path,) = Layout(two_arms).table("calls").glob("*.parquet")
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(path).to_pylist():
        runs.setdefault(row["run_id"], []).append(row)
    by_hand = []
    for rows in runs.values():
        known = []
        for before, row in zip([None, *rows], rows, strict=False):
            idle = before and row["started_at"] - before["started_at"] - before["latency_s"]
            if row["lcp_tokens"] is not None or prices.is_flat:
                cost = prices.call_cost(
                    prompt_tokens=row["prompt_tokens"],
                    cached_tokens=row["lcp_tokens"] or 0,
                    completion_tokens=row["completion_tokens"],
                    idle_s=idle,
                )
                known.append(cost)
        by_hand.append(sum(known) if known else float("nan"))
    totals = [found[arm].total for arm in ("full_history", "plan_prune")]
    assert totals == pytest.approx(by_hand, nan_ok=True)


def test_full_price_input_tokens_are_those_that_no_cache_gave(pristine: Path):
    """Against a loop over the calls: seed means by instance, then one sum over the other."""
    layout = Layout(pristine)
    runs = pq.read_table(layout.table_file("runs")).to_pylist()
    arm_of = {row["run_id"]: row["arm"] for row in runs}
    n_seeds = len({row["seed"] for row in runs})
    total = dict.fromkeys(arm_of.values(), 0.0)
    for path in layout.table("calls").glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            total[arm_of[row["run_id"]]] += (row["prompt_tokens"] - row["lcp_tokens"]) / n_seeds
    connection, study = opened_study(pristine)
    connection.close()
    for contrast in study.groups[0].contrasts:
        assert contrast.full_price is not None
        expected = total[contrast.arm] / total["full_history"]
        assert contrast.full_price.ratio.value == pytest.approx(expected)


def test_cheaper_at_the_same_rate_is_said_by_price_list_and_never_of_tokens(pristine: Path):
    """Pruning saves tokens and loses the cache: flat prices yes, caching prices no."""
    connection, study = opened_study(pristine)
    connection.close()
    contrast = next(c for c in study.groups[0].contrasts if c.arm == "plan_prune")
    assert contrast.solve is not None
    not_worse = replace(contrast.solve.sameness, low=-0.01, high=0.01)
    ratio = {c.prices: c.ratio for c in contrast.costs}
    same = replace(contrast, solve=replace(contrast.solve, sameness=not_worse))
    assert contrast.tokens.high < 1
    assert same.cheaper_under == tuple(name for name, found in ratio.items() if found.high < 1)
    dear = tuple(replace(c, ratio=replace(c.ratio, high=1.2)) for c in contrast.costs[1:])
    cheap_when_flat = replace(same, costs=(contrast.costs[0], *dear))
    assert cheap_when_flat.cheaper_under == ("flat",)
    assert "flat prices yes, caching prices not shown" in verdict(cheap_when_flat)
    assert f"cost ratio {ratio_words(ratio['caching'])} with caching prices" in verdict(contrast)
