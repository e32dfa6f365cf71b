"""How far each arm is from the cheapest schedule of removals on its own runs.

See docs/methods.md, Cheapest schedule.

Sizes are those of `messages`; an edited text counts in proportion to its characters. What the arm's
own calls cost is no part of it. Only some runs of each arm are looked at.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import nan
from typing import Any

import duckdb

from pipeline.accounting.best_schedule import MAX_CALLS, best_schedule, schedule_cost
from pipeline.accounting.break_even import Prices
from pipeline.accounting.removals import Removal, StepHistory
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.records.json_columns import edit_from
from pipeline.spec.pricing import PriceList
from pipeline.views.shown import STANDING_REASONS
from pipeline.views.trajectory import Edit, Message

MAX_RUNS = 20
"""Of each arm."""

_MESSAGES = """
SELECT run_id, message_index, step_index, role, tool, coalesce(n_tokens, 0) AS n_tokens,
  coalesce(reasoning_tokens, 0) AS reasoning_tokens, waited_s, length(content) AS n_chars
FROM messages WHERE run_id IN (SELECT unnest(?)) ORDER BY run_id, message_index
"""
_CALLS = """
SELECT run_id, message_count, view_edits,
  kind = 'step' AND (prompt_tokens IS NOT NULL OR error IS NULL OR reply IS NOT NULL) AS is_step
FROM calls WHERE run_id IN (SELECT unnest(?)) ORDER BY run_id, call_index
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmPriceRegret:
    """One arm's price regret over some of its runs, as a share of what their input cost unpruned.

    NaN where the edits of some run are more than removals of what was shown.
    """

    arm: str
    prices: str
    n_runs: int
    regret: float
    timing: float


def price_regrets(
    connection: duckdb.DuckDBPyConnection, group: Group, prices: PriceList
) -> list[ArmPriceRegret]:
    """Return the price regret of every arm that has runs of few enough calls."""
    found = []
    for name, arm in group.arms.items():
        runs = list(_runs(connection, arm, prices))
        if not runs:
            continue
        own, best, retimed = (sum(costs) for costs in zip(*(r.costs for r in runs), strict=True))
        unpruned = sum(run.unpruned for run in runs)
        found.append(
            ArmPriceRegret(
                arm=name,
                prices=prices.name,
                n_runs=len(runs),
                regret=(own - best) / unpruned,
                timing=(own - retimed) / unpruned,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunCosts:
    unpruned: float
    """Of the input, had nothing been removed."""
    costs: tuple[float, float, float]
    """More than unpruned: as it was, under the best schedule, and with its own removals retimed.
    NaN where there were edits that are none."""


def _runs(
    connection: duckdb.DuckDBPyConnection, arm: ArmOutcomes, prices: PriceList
) -> Iterator[_RunCosts]:
    """Yield the costs of some finished runs of few enough calls, drawn by their hashes."""
    run_ids = [str(run_id) for run_id in arm.run_id[arm.done]]
    drawn = sorted(run_ids, key=lambda name: name.rpartition("-")[2])[:MAX_RUNS]
    messages, calls = (
        {run_id: list(rows) for run_id, rows in groupby(found, key=lambda row: row["run_id"])}
        for found in (_rows(connection, query, drawn) for query in (_MESSAGES, _CALLS))
    )
    for run_id in drawn:
        n_calls = sum(call["is_step"] for call in calls.get(run_id, ()))
        rows = messages.get(run_id, [])
        # Synthetic runs have no system and task messages, so nothing is known of their prefix.
        is_whole = bool(rows) and rows[-1]["message_index"] + 1 == len(rows)
        if is_whole and 0 < n_calls <= MAX_CALLS:
            yield _run_costs(rows, calls[run_id], prices)


def _rows(
    connection: duckdb.DuckDBPyConnection, query: str, run_ids: Sequence[str]
) -> list[dict[str, Any]]:
    found = connection.sql(query, params=[list(run_ids)]).to_arrow_table()
    return list(found.to_pylist())


def _run_costs(
    rows: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]], listed: PriceList
) -> _RunCosts:
    n_chars = [row.pop("n_chars") or 0 for row in rows]
    messages = [_message(row) for row in rows]
    edits = [
        [edit_from(values) for values in json.loads(call["view_edits"] or "{}").get("edits", ())]
        for call in calls
    ]

    def size(index: int, edit: Edit | None) -> int:
        message = messages[index]
        share = len(edit.text) / n_chars[index] if edit and n_chars[index] else 1.0
        return round(message.n_tokens * share) + message.reasoning_tokens

    shared = {e.message_index: e for some in edits for e in some if e.reason in STANDING_REASONS}
    sizes = [size(message.index, shared.get(message.index)) for message in messages]
    n_messages = [call["message_count"] for call in calls if call["is_step"]]
    history = StepHistory(messages, sizes, n_messages)
    prices = Prices(
        input=listed.input, cached=listed.cached, output=listed.output, write=listed.written
    )
    cold = [_is_cold(messages[a:b], listed.ttl_s) for a, b in pairwise([0, *n_messages])]
    hits = sum(n for n, lost in zip(history.sent_tokens, cold, strict=True) if not lost)
    unpruned = prices.written * sum(sum(sizes[:n]) for n in n_messages)
    unpruned -= (prices.written - prices.cached) * hits

    def saved(edit: Edit) -> int:
        return sizes[edit.message_index] - size(edit.message_index, edit)

    def cost(removals: Sequence[Removal], *, as_made: bool = False) -> float:
        """Return what a schedule costs more than to remove nothing: as made, or the best."""
        some = [r for r in removals if as_made or saved(r.edit) > 0]
        outputs, sent = history.removables(some, saved), history.sent_tokens
        schedule: Sequence[int | None] = [r.from_call for r in some]
        if not as_made:
            schedule = best_schedule(outputs, sent, prices, cold=cold)
        above = schedule_cost(outputs, sent, prices, schedule, cold=cold)
        return above - schedule_cost(outputs, sent, prices, [None] * len(some), cold=cold)

    made = history.made(list(_edits_by_step(calls, edits)))
    if made is None:
        return _RunCosts(unpruned=unpruned, costs=(nan, nan, nan))
    costs = cost(made, as_made=True), cost(list(history.possible())), cost(made)
    return _RunCosts(unpruned=unpruned, costs=costs)


def _message(row: dict[str, Any]) -> Message:
    """Return a message without its text."""
    kept = {name: row[name] for name in row if name not in ("run_id", "message_index")}
    return Message(index=row["message_index"], content="", **kept)


def _edits_by_step(
    calls: Sequence[dict[str, Any]], edits: Sequence[Sequence[Edit]]
) -> Iterator[list[Edit]]:
    """Yield the arm's edits that came into force from one step call to the next."""
    since: list[Edit] = []
    for call, new in zip(calls, edits, strict=True):
        since += (edit for edit in new if edit.reason not in STANDING_REASONS)
        if call["is_step"]:
            yield since
            since = []


def _is_cold(came: Sequence[Message], ttl_s: float | None) -> bool:
    waits = [m.waited_s for m in came if m.waited_s is not None]
    return ttl_s is not None and max(waits, default=0.0) > ttl_s
