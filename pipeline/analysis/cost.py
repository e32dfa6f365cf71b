"""What each run cost under each view of the cache, and which price ratio makes an arm pay.

Three views, never mixed: `exact` (longest prefix any earlier call of the run shared), `block` (the
same rounded down to the server's block) and `reported` (what the server said). Flat pricing needs
none of them. A run with a call whose cached tokens are unknown in a view has no cost in it.

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
from pipeline.analysis.pricing import PriceList, Pricing

VIEWS: Mapping[str, str] = {
    "exact": "lcp_tokens",
    "block": "lcp_block_tokens",
    "reported": "cached_tokens",
}
"""View to the column of `calls` that it takes as cached."""

_USAGE = """
WITH answered AS (
  SELECT c.run_id, c.call_index, c.kind, c.prompt_tokens, c.completion_tokens,
    CASE WHEN c.lcp_tokens < {m} THEN 0 ELSE c.lcp_tokens END AS lcp_tokens,
    CASE WHEN c.lcp_block_tokens < {m} THEN 0 ELSE c.lcp_block_tokens END AS lcp_block_tokens,
    CASE WHEN c.cached_tokens < {m} THEN 0 ELSE c.cached_tokens END AS cached_tokens,
    c.new_tokens, c.rebilled_tokens,
    lag(c.kind) OVER w = 'cleanup' AS after_cleanup,
    last_value(CASE WHEN c.kind = 'step' THEN c.prompt_tokens + c.completion_tokens END
      IGNORE NULLS) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_step
  FROM calls c JOIN done USING (run_id)
  WHERE c.prompt_tokens IS NOT NULL
  WINDOW w AS (PARTITION BY c.run_id ORDER BY c.call_index)
)
SELECT run_id,
  sum(prompt_tokens)::DOUBLE AS prompt,
  sum(completion_tokens)::DOUBLE AS completion,
  sum(new_tokens) FILTER (kind = 'step')::DOUBLE AS step_new,
  sum(rebilled_tokens) FILTER (kind = 'step')::DOUBLE AS step_rebilled,
  coalesce(sum(prompt_tokens) FILTER (kind <> 'step'), 0)::DOUBLE AS aux_prompt,
  coalesce(sum(completion_tokens) FILTER (kind <> 'step'), 0)::DOUBLE AS aux_completion,
  coalesce(sum(prompt_tokens) FILTER (kind = 'cleanup'), 0)::DOUBLE AS cleanup_prompt,
  coalesce(sum(completion_tokens) FILTER (kind = 'cleanup'), 0)::DOUBLE AS cleanup_completion,
  {views}
FROM answered GROUP BY run_id
"""

_VIEW = """
  CASE WHEN count({c}) = count(*) THEN sum({c}) END::DOUBLE AS {v},
  coalesce(sum({c}) FILTER (kind <> 'step'), 0)::DOUBLE AS {v}_aux,
  coalesce(sum({c}) FILTER (kind = 'cleanup'), 0)::DOUBLE AS {v}_cleanup,
  coalesce(sum(greatest({c} - previous_step, 0))
    FILTER (after_cleanup AND kind = 'step'), 0)::DOUBLE AS {v}_prepaid
"""


Usage = Mapping[str, FloatArray]
"""Token sums of one arm's runs: column to (instances, seeds), NaN where a run is not done."""


def usage_of(
    connection: duckdb.DuckDBPyConnection, group: Group, *, min_prefix: int = 0
) -> dict[str, Usage]:
    """Return the token sums of every finished run of `group`, by arm.

    Args:
        connection: from `open_tables`.
        group: whose runs.
        min_prefix: cached prefixes shorter than this are billed in full.
    """
    columns = _usage_columns(connection, min_prefix)
    names = [str(name) for name in columns.pop("run_id").tolist()]
    return dict(shaped_by_arm(group, names, columns))


def _usage_columns(connection: duckdb.DuckDBPyConnection, min_prefix: int) -> dict[str, Any]:
    """Return the sums by run; they are kept in the connection, since every group reads them."""
    views = ", ".join(_VIEW.format(c=column, v=view) for view, column in VIEWS.items())
    query = _USAGE.format(views=views, m=int(min_prefix))
    table = f"usage_{int(min_prefix)}"
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} AS {query}")
    columns = connection.execute(f"SELECT * FROM {table}").fetchnumpy()
    return {
        name: values
        if name == "run_id"
        else np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
        for name, values in columns.items()
    }


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
    """Total over solved tasks; NaN where nothing is graded, infinite where nothing is solved."""
    ratio: Estimate | None
    """To the reference; None for the reference itself."""


def run_costs(usage: Usage, prices: PriceList, view: str) -> FloatArray:
    """Return each run's cost, shape (instances, seeds)."""
    prompt, completion = usage["prompt"], usage["completion"]
    cached = np.zeros_like(prompt) if prices.cached == prices.uncached else usage[view]
    cost: FloatArray = (
        prices.cached * cached + prices.uncached * (prompt - cached) + prices.output * completion
    )
    return cost


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
    found = []
    for name, arm in group.arms.items():
        paired = arm.complete & control.complete
        costs = _means(run_costs(usages[name], prices, view), arm)[paired]
        base = _means(run_costs(usages[reference], prices, view), control)[paired]
        counts = draws.of(int(paired.sum()))
        ratio = None if name == reference else ratios_of_sums(base, costs[:, None], counts)[0]
        found.append(
            _bill(usages[name], arm, prices, view, paired=paired, costs=costs, ratio=ratio)
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


def _bill(
    usage: Usage,
    arm: ArmOutcomes,
    prices: PriceList,
    view: str,
    *,
    paired: np.ndarray,
    costs: FloatArray,
    ratio: Estimate | None,
) -> ArmBill:
    def total(name: str) -> float:
        return float(_means(usage[name], arm)[paired].sum())

    spare = prices.uncached - prices.cached
    flat = spare == 0

    def discount(name: str) -> float:
        # Under flat prices the cache changes nothing, so it need not be known.
        return 0.0 if flat else spare * total(name)

    auxiliary = total("aux_prompt") * prices.uncached - discount(f"{view}_aux")
    auxiliary += total("aux_completion") * prices.output
    gross = total("cleanup_prompt") * prices.uncached - discount(f"{view}_cleanup")
    gross += total("cleanup_completion") * prices.output
    step_cached = total(view) - total(f"{view}_aux")
    step_rest = total("prompt") - total("aux_prompt") - step_cached
    new, rebilled = total("step_new"), total("step_rebilled")
    share = rebilled / (new + rebilled) if new + rebilled > 0 else 0.0
    solved = float(seed_means(arm.resolved)[paired].sum())
    whole = float(costs.sum())
    if np.isnan(solved):
        per_solved = float("nan")
    else:
        per_solved = whole / solved if solved > 0 else float("inf")
    return ArmBill(
        arm=arm.arm,
        prices=prices.name,
        view=FLAT if flat else view,
        total=whole,
        cached=step_cached * prices.cached,
        new=step_rest * prices.uncached * (1 - share),
        rebilled=step_rest * prices.uncached * share,
        output=(total("completion") - total("aux_completion")) * prices.output,
        auxiliary=auxiliary,
        cleanup_gross=gross,
        cleanup_marginal=gross - discount(f"{view}_prepaid"),
        per_run=whole / len(costs) if len(costs) else float("nan"),
        per_solved=per_solved,
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
                view=view,
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
    cached = _means(usage[view], arm)[paired] * base.input
    rest = _means(usage["prompt"], arm)[paired] * base.input - cached
    return rest + _means(usage["completion"], arm)[paired] * base.output, cached


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
