"""Whether the runs are those of the plan: none missing, none twice, none of another origin."""

from collections.abc import Collection, Sequence

import duckdb

from pipeline.analysis.problem import Problem
from pipeline.analysis.tables import count_in
from pipeline.analysis.tally import TallyRow
from pipeline.plural import plural


def no_plan(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return the problem of a folder whose plan is missing."""
    if count_in(connection, "SELECT count(*) FROM plan"):
        return []
    return [
        Problem(
            code="no_plan",
            sentence="the folder's plan.parquet is missing or empty: which runs are missing is "
            "unknown",
            remedy="restore it from a copy, or move sweep.lock.yaml away and launch the same sweep "
            "again: finished runs are kept",
        )
    ]


def no_lock() -> list[Problem]:
    """Return the problem of a folder that was never locked."""
    return [
        Problem(
            code="no_lock",
            sentence="the folder has no sweep.lock.yaml: what was planned is unknown",
            remedy="ingested runs have none: --allow-invalid describes them, as exploratory",
        )
    ]


def nothing_there(tally: Sequence[TallyRow]) -> list[Problem]:
    """Return the problem of a folder without a finished run."""
    if any(row.done for row in tally):
        return []
    return [
        Problem(
            code="no_runs",
            sentence="no run is finished yet",
            remedy="see how far the sweep is: python -m pipeline.status RESULTS",
        )
    ]


def missing_runs(
    tally: Sequence[TallyRow], *, has_lock: bool, ended_arms: Collection[str] = ()
) -> list[Problem]:
    """Return planned runs that have no valid result; `ended_arms` are judged by their looks."""
    tally = [row for row in tally if row.arm not in ended_arms]
    missing = sum(row.planned - row.done for row in tally)
    if not missing:
        return []
    infra = sum(n for row in tally for e, n in row.endings.items() if e.startswith("infra"))
    planned = sum(row.planned for row in tally)
    return [
        Problem(
            code="missing_runs",
            sentence=f"{missing} of {planned} {'planned ' if has_lock else ''}runs have no result "
            f"({infra} failed on our side, {missing - infra} never ran)",
            remedy="launch the sweep again: only what is missing is run"
            if has_lock
            else "none can be run again from here: --allow-invalid leaves them out, counted",
        )
    ]


def strange_runs(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return runs that the plan does not hold."""
    n = count_in(
        connection,
        "SELECT count(*) FROM runs ANTI JOIN plan USING (run_id) "
        "WHERE (SELECT count(*) FROM plan) > 0",
    )
    if not n:
        return []
    return [
        Problem(
            code="mixed_science",
            sentence=f"{plural(n, 'run is', 'runs are')} not of this plan: another "
            "science config made them",
            remedy="analyse the sweep that they belong to in its own results folder",
        )
    ]


_TWINS = """
SELECT min(run_id), max(run_id) FROM done
GROUP BY benchmark, model, agent, arm, seed, instance_id HAVING count(DISTINCT run_id) > 1
ORDER BY ALL
"""


def twin_runs(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Say where one cell has two valid runs of one instance: which of them counts is nobody's."""
    pairs = connection.execute(_TWINS).fetchall()
    if not pairs:
        return []
    named = "; ".join(f"{one} and {other}" for one, other in pairs[:3])
    return [
        Problem(
            code="twin_runs",
            sentence=f"{plural(len(pairs), 'place')} in the design (cell, instance, seed) with "
            f"more than one valid run: {named}{'; ...' if len(pairs) > 3 else ''}",
            runs=tuple(run for pair in pairs for run in pair),
            remedy="keep one of each: analyse them in the results folders they were made for",
        )
    ]


def silent_runs(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return runs in which the model generated no token."""
    n = count_in(connection, "SELECT count(*) FROM done WHERE output_tokens = 0 AND n_calls > 0")
    if not n:
        return []
    return [
        Problem(
            code="zero_tokens",
            sentence=f"{plural(n, 'run')} generated no token at all",
            remedy="the server answered with nothing: read its log, then run them again",
        )
    ]


_UNKNOWN = """
SELECT exit_status, count(*), min(coalesce(failure, '')) FROM runs
WHERE failure_class = 'unknown_ending' GROUP BY exit_status ORDER BY 2 DESC, 1
"""


def unknown_endings(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Say which endings of recorded runs nobody here knows, in their own words."""
    rows = connection.execute(_UNKNOWN).fetchall()
    if not rows:
        return []
    named = "; ".join(f"{status} ({n}): {text.strip()[-120:]}" for status, n, text in rows[:3])
    return [
        Problem(
            code="unknown_endings",
            sentence=f"{plural(sum(n for _, n, _ in rows), 'run')} ended in a way that is not "
            f"known here: {named}",
            remedy="judge them by hand: the agent's doing, or their maker's; runs.failure has all",
            blocks=False,
        )
    ]


def idle_arms(connection: duckdb.DuckDBPyConnection, acting_arms: Sequence[str]) -> list[Problem]:
    """Say where a policy never acted: a baseline that ran under another arm's name."""
    acted = {
        str(arm)
        for (arm,) in connection.execute(
            "SELECT DISTINCT arm FROM done WHERE n_pruned > 0"
        ).fetchall()
    }
    return [
        Problem(
            code="idle_arm",
            sentence=f"arm {arm} took nothing away in any run: its policy never acted",
            remedy="look at the dose table; runs may be too short for it, or it is not wired up",
            blocks=False,
        )
        for arm in acting_arms
        if arm not in acted
    ]
