"""What each run cost under each view of the cache, and which price ratio makes an arm pay.

Four views, never mixed: the longest prefix that any earlier call of the run shared (`exact` on
token ids, else `estimated`), `block` (the same rounded down to the server's block), `reported`
(what the server said), and `spliced` (what an engine could give that keeps the keys of all text
that stays, wherever it moves).
Flat prices need none of them. Sums are over the calls whose cached tokens a view knows, and say how
many of how many these are; a run of which a view knows no call has no cost in it.

The cleanup's cost is shown gross (its calls) and marginal: it prepays the newest output, so the
step after it would have cost more without it. Without the cleanup, that step shares at most the
previous step's prompt and completion.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, ratios_of_sums, seed_means
from pipeline.analysis.contrasts import FLAT, CostRatio, Draws
from pipeline.analysis.outcomes import ArmOutcomes, Group, shaped_by_arm
from pipeline.spec.pricing import PriceList, Pricing

VIEWS: Mapping[str, str] = {
    "exact": "lcp_tokens",
    "block": "lcp_block_tokens",
    "reported": "cached_tokens",
    "spliced": "spliced_tokens",
}
"""View to the column of `calls` that it takes as cached."""

_HIT = """
  CASE WHEN c.{column} IS NULL THEN NULL
    WHEN least(c.{column}, c.prompt_tokens) < {min_prefix}{cold} THEN 0
    ELSE least(c.{column}, c.prompt_tokens) END AS {view}"""
_COLD = " OR idle_s > {ttl_s}"

_USAGE = """
WITH timed AS (
  SELECT c.*, c.started_at - lag(c.started_at + c.latency_s) OVER (
    PARTITION BY c.run_id ORDER BY c.call_index) AS idle_s
  FROM calls c JOIN done USING (run_id)
), answered AS (
  SELECT c.run_id, c.call_index, c.kind, c.prompt_tokens AS prompt,
    c.completion_tokens AS completion, 0 AS flat, {hits},
    CASE WHEN c.prompt_tokens >= {min_prefix} THEN c.prompt_tokens ELSE 0 END AS cacheable,
    c.new_tokens, c.rebilled_tokens, c.lcp_exact,
    lag(c.kind) OVER w = 'cleanup' AS after_cleanup,
    last_value(CASE WHEN c.kind = 'step' THEN c.prompt_tokens + c.completion_tokens END
      IGNORE NULLS) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_step
  FROM timed c
  WHERE c.prompt_tokens IS NOT NULL
  WINDOW w AS (PARTITION BY c.run_id ORDER BY c.call_index)
)
SELECT run_id,
  sum(new_tokens) FILTER (kind = 'step')::DOUBLE AS step_new,
  sum(rebilled_tokens) FILTER (kind = 'step')::DOUBLE AS step_rebilled,
  count(*)::DOUBLE AS answered_calls,
  count(*) FILTER (exact IS NOT NULL AND lcp_exact IS NOT TRUE)::DOUBLE AS estimated_calls,
  {sums}
FROM answered GROUP BY run_id
"""

_PARTS = {"": "true", "aux_": "kind <> 'step'", "cleanup_": "kind = 'cleanup'"}
"""Part of a run's calls to the condition on a call."""

_QUANTITIES = ("prompt", "cacheable", "completion")


Usage = Mapping[str, FloatArray]
"""Token sums of one arm's runs: column to (instances, seeds), NaN where a run is not done.

Columns `VIEW_PART_QUANTITY`: over the calls of a part (all, `aux`, `cleanup`) that the view knows.
"""


def usage_of(
    connection: duckdb.DuckDBPyConnection, group: Group, prices: PriceList | None = None
) -> dict[str, Usage]:
    """Return the token sums of every finished run of `group`, by arm.

    Args:
        connection: from `open_tables`.
        group: whose runs.
        prices: whose shortest prefix and time to live decide what is a hit; None: no limits.
    """
    columns = _usage_columns(connection, prices or PriceList(name="no limits"))
    names = [str(name) for name in columns.pop("run_id").tolist()]
    return dict(shaped_by_arm(group, names, columns))


def _usage_columns(connection: duckdb.DuckDBPyConnection, prices: PriceList) -> dict[str, Any]:
    """Return the sums by run; they are kept in the connection, since every group reads them."""
    cold = "" if prices.ttl_s is None else _COLD.format(ttl_s=float(prices.ttl_s))
    hits = ",".join(
        _HIT.format(
            view=view,
            column=column,
            min_prefix=prices.min_prefix,
            # What a server reports is what it found; our clocks do not correct it.
            cold="" if view == "reported" else cold,
        )
        for view, column in VIEWS.items()
    )
    sums = ",\n  ".join(column for view in (*VIEWS, FLAT) for column in _sums(view))
    table = f"usage_{prices.min_prefix}_{str(prices.ttl_s or 0).replace('.', '_')}"
    query = _USAGE.format(hits=hits, sums=sums, min_prefix=prices.min_prefix)
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} AS {query}")
    columns = connection.execute(f"SELECT * FROM {table}").fetchnumpy()
    return {
        name: values
        if name == "run_id"
        else np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
        for name, values in columns.items()
    }


def _sums(view: str) -> list[str]:
    """Return the SQL columns of one view."""
    columns = [f"count({view})::DOUBLE AS {view}_calls"]
    for part, condition in _PARTS.items():
        where = f"FILTER ({view} IS NOT NULL AND {condition})"
        for name, of in [*((q, q) for q in _QUANTITIES), ("cached", view)]:
            total = f"sum({of}) {where}"
            # No call of a part is no tokens; no known call of a run is not known.
            total = f"coalesce({total}, 0)" if part else total
            columns.append(f"({total})::DOUBLE AS {view}_{part}{name}")
    columns.append(
        f"coalesce(sum(greatest({view} - previous_step, 0)) FILTER (after_cleanup AND"
        f" kind = 'step'), 0)::DOUBLE AS {view}_prepaid"
    )
    return columns


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmBill:
    """What one arm's runs cost under one list and view, mean over seeds, summed over instances."""

    arm: str
    prices: str
    view: str
    total: float
    cached: float
    new: float
    rebilled: float
    output: float
    auxiliary: float
    """Cleanup, summary and other calls: input and output together. The other parts are steps'."""
    cleanup_gross: float
    cleanup_marginal: float
    per_run: float
    per_solved: float
    """Total over solved tasks; NaN where nothing is graded or nothing is solved."""
    known_calls: int
    """Calls that the sums are over; the others' cached tokens are unknown in this view."""
    n_calls: int
    ratio: Estimate | None
    """To the reference; None for the reference itself."""


def part_costs(usage: Usage, prices: PriceList, view: str, part: str = "") -> FloatArray:
    """Return what a part of each run's calls cost, shape (instances, seeds)."""
    cost: FloatArray = prices.cost(
        prompt=usage[f"{view}_{part}prompt"],
        cacheable=usage[f"{view}_{part}cacheable"],
        cached=usage[f"{view}_{part}cached"],
        completion=usage[f"{view}_{part}completion"],
    )
    return cost


def run_costs(usage: Usage, prices: PriceList, view: str) -> FloatArray:
    """Return each run's cost, shape (instances, seeds)."""
    return part_costs(usage, prices, FLAT if prices.is_flat else view)


def instance_costs(usage: Usage, arm: ArmOutcomes, prices: PriceList, view: str) -> FloatArray:
    """Return each instance's cost, mean over seeds; NaN where a planned run has none."""
    return _means(run_costs(usage, prices, view), arm)


def view_label(usages: Mapping[str, Usage], view: str) -> str:
    """Return a view's name in results: a prefix is exact only where all token ids are known."""
    if view != "exact":
        return view
    estimated = sum(float(np.nansum(usage["estimated_calls"])) for usage in usages.values())
    return "estimated" if estimated else "exact"


def bills(
    usages: Mapping[str, Usage],
    group: Group,
    prices: PriceList,
    *,
    view: str,
    reference: str,
    draws: Draws,
) -> list[ArmBill]:
    """Return the bill of every arm on the instances that are complete in it and the reference."""
    control = group.arms[reference]
    view = FLAT if prices.is_flat else view
    label = view_label(usages, view)
    found = []
    for name, arm in group.arms.items():
        paired = arm.complete & control.complete
        costs = instance_costs(usages[name], arm, prices, view)[paired]
        base = instance_costs(usages[reference], control, prices, view)[paired]
        counts = draws.of(int(paired.sum()))
        ratio = None if name == reference else ratios_of_sums(base, costs[:, None], counts)[0]
        found.append(
            _bill(usages[name], arm, prices, (view, label), paired=paired, costs=costs, ratio=ratio)
        )
    return found


def cost_ratios(found: Sequence[ArmBill], arm: str) -> tuple[CostRatio, ...]:
    """Return an arm's cost ratio under every price list, in the first view of each."""
    first = {b.prices: b for b in reversed(found) if b.arm == arm}
    return tuple(
        CostRatio(prices=b.prices, view=b.view, ratio=b.ratio)
        for b in reversed(first.values())
        if b.ratio is not None
    )


FULL_PRICE = PriceList(name="full-price input tokens", cached=0.0, output=0.0)
"""Counts the input tokens that no cache gave for nothing: a bill in tokens."""


def _bill(
    usage: Usage,
    arm: ArmOutcomes,
    prices: PriceList,
    view: tuple[str, str],
    *,
    paired: np.ndarray,
    costs: FloatArray,
    ratio: Estimate | None,
) -> ArmBill:
    key, label = view

    def total(values: FloatArray) -> float:
        return float(_means(values, arm)[paired].sum())

    def calls(name: str) -> int:
        return int(np.nansum(usage[name][paired]))

    auxiliary = total(part_costs(usage, prices, key, "aux_"))
    gross = total(part_costs(usage, prices, key, "cleanup_"))
    prepaid = (prices.written - prices.cached) * total(usage[f"{key}_prepaid"])
    whole = float(costs.sum())
    cached = prices.cached * total(usage[f"{key}_cached"] - usage[f"{key}_aux_cached"])
    output = prices.output * total(usage[f"{key}_completion"] - usage[f"{key}_aux_completion"])
    rest = whole - auxiliary - cached - output
    new, rebilled = total(usage["step_new"]), total(usage["step_rebilled"])
    # Spliced, all that is not cached was never sent.
    known = key != "spliced" and new + rebilled > 0
    share = rebilled / (new + rebilled) if known else 0.0
    solved = float(seed_means(arm.resolved)[paired].sum())
    return ArmBill(
        arm=arm.arm,
        prices=prices.name,
        view=label,
        total=whole,
        cached=cached,
        new=rest * (1 - share),
        rebilled=rest * share,
        output=output,
        auxiliary=auxiliary,
        cleanup_gross=gross,
        cleanup_marginal=gross - (0.0 if key == FLAT else prepaid),
        per_run=whole / len(costs) if len(costs) else float("nan"),
        per_solved=whole / solved if solved > 0 else float("nan"),
        known_calls=calls(f"{key}_calls"),
        n_calls=calls("answered_calls"),
        ratio=ratio,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceSweep:
    """An arm's cost over the reference's as the price of a cached token changes."""

    arm: str
    view: str
    ratios: tuple[float, ...]
    """Cached price over input price."""
    costs: tuple[Estimate, ...]
    break_even: float | None
    """The ratio at which arm and reference cost the same; None if there is none in [0, 1]."""
    pays: str
    """`always`, `never`, `above` or `below` the break-even."""


def price_sweep(
    usages: Mapping[str, Usage],
    group: Group,
    pricing: Pricing,
    *,
    view: str,
    reference: str,
    draws: Draws,
) -> list[PriceSweep]:
    """Return the sweep of every arm but the reference; output stays at the primary list's price."""
    control = group.arms[reference]
    base = pricing.primary
    label = view_label(usages, view)
    found = []
    for name, arm in group.arms.items():
        if name == reference:
            continue
        paired = arm.complete & control.complete
        counts = draws.of(int(paired.sum()))
        sides = [_linear(usages[side.arm], side, base, view, paired) for side in (control, arm)]
        costs = tuple(
            ratios_of_sums(
                sides[0][0] + r * sides[0][1], (sides[1][0] + r * sides[1][1])[:, None], counts
            )[0]
            for r in pricing.ratio_sweep
        )
        fixed = float(sides[1][0].sum() - sides[0][0].sum())
        slope = float(sides[1][1].sum() - sides[0][1].sum())
        point, pays = _break_even(fixed, slope)
        found.append(
            PriceSweep(
                arm=name,
                view=label,
                ratios=pricing.ratio_sweep,
                costs=costs,
                break_even=point,
                pays=pays,
            )
        )
    return found


def _linear(
    usage: Usage, arm: ArmOutcomes, base: PriceList, view: str, paired: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Return (cost at ratio 0, what ratio 1 adds) by instance; cost is linear in the ratio."""
    none, all_ = base.at_ratio(0.0), base.at_ratio(1.0)
    fixed = _means(part_costs(usage, none, view), arm)[paired]
    return fixed, _means(part_costs(usage, all_, view), arm)[paired] - fixed


def _break_even(fixed: float, slope: float) -> tuple[float | None, str]:
    """Return where `fixed + ratio * slope` is zero within [0, 1], and where the arm pays."""
    if np.isnan(fixed) or np.isnan(slope):
        return None, "unknown"
    ends = fixed, fixed + slope
    if max(ends) < 0:
        return None, "always"
    if min(ends) >= 0:
        return None, "never"
    return -fixed / slope, "above" if slope < 0 else "below"


def _means(values: FloatArray, arm: ArmOutcomes) -> FloatArray:
    """Return seed means; NaN where a planned run has no value, since what is unknown counts."""
    lacking = (np.isnan(values) & arm.planned).any(axis=1)
    means: FloatArray = np.where(lacking, np.nan, seed_means(values))
    return means
