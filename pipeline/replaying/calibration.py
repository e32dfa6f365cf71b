"""Budgets for arms, set on a pilot: the tokens that each value led to, and which one fits a budget.

A budget is a number of tokens, or a share of the tokens of full history on the same pilot, so that
arms that are calibrated one at a time get the same budgets (docs/methods.md, Budgets). The result
is the text of a file in conf/arms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock
from pipeline.spec.arm import ArmSpec, MatchOn
from pipeline.spec.budget import BudgetError, Fitted, PilotPoint, fitted, tuned_parameter
from pipeline.spec.budget import with_parameter as with_value
from pipeline.spec.parse import plain

LEVELS = ("low", "mid", "high")
SHARES = (0.6, 0.75, 0.9)
"""Of full history's tokens, where no budgets are given."""
TOLERANCE = 0.1
"""How far the nearest value may be from its budget, as a share of it."""

_OF_RUN = {
    "mean_prompt": lambda run: _ratio(run["input_tokens"], run["n_counted_calls"]),
    "peak": lambda run: run["peak_context_tokens"],
    "removed_tokens": lambda run: run["pruned_tokens"],
    "total_input": lambda run: run["input_tokens"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pilot:
    """The tokens that values of one parameter led to, and full history, on the same instances."""

    points: Sequence[PilotPoint]
    reference: float | None
    """None where full history was not among what was measured."""
    source: str
    """For people."""


def pilot_of_runs(results: Path, arm: ArmSpec, match_on: MatchOn) -> Pilot:
    """Return the finished runs of a sweep as a pilot: arms that differ in one value.

    Raises:
        LockError: the folder has no lock.
        BudgetError: it has no tables, or no arm that is `arm` with some value.
    """
    layout = Layout(results)
    lock = read_lock(layout.lock)
    if not layout.table_file("runs").exists():
        raise BudgetError(
            f"{results} has no tables: run python -m pipeline.compact {results} first"
        )
    runs = pq.read_table(layout.table_file("runs")).to_pylist()
    parameter = tuned_parameter(arm)
    points, reference = [], None
    for name, other in lock.spec.arms.items():
        mine = [run for run in runs if run["arm"] == name and not _is_ours(run)]
        sizes = [size for size in map(_OF_RUN[match_on], mine) if size is not None]
        if not sizes:
            continue
        mean = sum(sizes) / len(sizes)
        if other.policy.kind == "full_history":
            reference = mean
        elif other.policy.kind == arm.policy.kind:
            value = float(getattr(other.policy, parameter))
            if with_value(arm, value).policy == other.policy:
                points.append(PilotPoint(value=value, tokens=mean))
    if not points:
        raise BudgetError(
            f"{results} has no finished runs of {arm.name} with other values of {parameter}: give"
            " its sweep some arms that differ in it"
        )
    return Pilot(points=sorted(points, key=lambda p: p.value), reference=reference, source="runs")


def levels_of(arm: ArmSpec, pilot: Pilot, budgets: Sequence[float]) -> dict[str, Fitted]:
    """Return the arm at each level, lowest budget first.

    Args:
        arm: as configured.
        pilot: of this arm.
        budgets: as many as there are levels; those up to 1 are shares of full history.

    Raises:
        BudgetError: a share without full history, or a budget that no value comes near.
    """
    if len(budgets) != len(LEVELS):
        raise BudgetError(f"give {len(LEVELS)} budgets ({', '.join(LEVELS)}), not {len(budgets)}")
    found = {}
    for level, budget in zip(LEVELS, sorted(budgets), strict=True):
        if budget <= 1 and pilot.reference is None:
            raise BudgetError(
                "shares of full history need full history in the pilot: add that arm to its"
                " sweep, or give budgets in tokens"
            )
        tokens = budget * (pilot.reference or 0.0) if budget <= 1 else budget
        found[level] = fitted(arm, pilot.points, budget=tokens, tolerance=TOLERANCE)
    return found


def merged_text(
    before: Mapping[str, Any], name: str, levels: Mapping[str, Fitted], pilot: Pilot, match_on: str
) -> str:
    """Return the text of a conf/arms file: what it held, and the levels of one arm.

    Args:
        before: arms that the file already has.
        name: what the arms are called: `NAME_low` and so on.
        levels: from `levels_of`.
        pilot: whose points go into the file, so that a worker can see them.
        match_on: what was measured.
    """
    arms = dict(before)
    for level, level_of in levels.items():
        arms[f"{name}_{level}"] = {
            "policy": plain(level_of.arm.policy),
            "plan": level_of.arm.plan,
            "budget": round(level_of.requested_tokens, 1),
            "match_on": match_on,
            "pilot": [[point.value, round(point.tokens, 1)] for point in pilot.points],
        }
    head = (
        "# @package arms\n"
        "# Budgets that a pilot showed can be met, by `python -m pipeline.replay --pilot`. Its\n"
        "# instances must lie outside those of the sweep. A run takes the value of the pilot that\n"
        "# came nearest to its budget.\n"
    )
    return head + yaml.safe_dump(arms, sort_keys=False)


def report_lines(name: str, levels: Mapping[str, Fitted], pilot: Pilot, match_on: str) -> list[str]:
    """Return requested and achieved tokens as text for people."""
    whole = "" if pilot.reference is None else f", full history {pilot.reference:,.0f}"
    lines = [f"{name}: {match_on} by {pilot.source}{whole}"]
    lines += [
        f"  {name}_{level:5} {found.parameter}={found.value:g}: {found.achieved_tokens:,.0f} tokens"
        f" where {found.requested_tokens:,.0f} were asked"
        for level, found in levels.items()
    ]
    return lines


def _is_ours(run: Mapping[str, Any]) -> bool:
    return str(run["failure_class"]).startswith("infra_")


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below
