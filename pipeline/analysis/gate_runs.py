"""Which runs the gate's counts are about: the first few in its sentence, all of them in a table.

Owns one query for each problem that is a count of runs, and the check that needs one: prompts that
shrank although nothing was edited, which is what a server does that drops old messages in silence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import duckdb

from pipeline.analysis.problem import Problem

NAMED = 3
TABLE = "gate_runs"

SHRUNK = """
WITH counted AS (
  SELECT run_id, call_index, kind, prompt_tokens, count(view_edits) OVER (
    PARTITION BY run_id ORDER BY call_index ROWS UNBOUNDED PRECEDING) AS n_edits
  FROM calls
), steps AS (
  SELECT run_id, prompt_tokens, n_edits, lag(prompt_tokens) OVER run AS before,
    lag(n_edits) OVER run AS n_edits_before
  FROM counted WHERE kind = 'step' AND prompt_tokens IS NOT NULL
  WINDOW run AS (PARTITION BY run_id ORDER BY call_index)
)
SELECT DISTINCT run_id FROM steps JOIN done USING (run_id)
WHERE prompt_tokens < before AND n_edits = n_edits_before
  AND coalesce(template_dropped_tokens, 0) = 0 AND evidence IN ('live', 'sim')
"""
"""Between two steps without an edit a history only grows, unless the template drops reasoning. Who
edited other people's runs, and when, is not on record."""

_GRADED_AS = "SELECT run_id FROM done JOIN grades USING (run_id) WHERE grade_class = '{}'"

RUNS_OF = {
    "missing_runs": "SELECT run_id FROM plan ANTI JOIN done USING (run_id) "
    "ANTI JOIN ended_arms USING (arm)",
    "mixed_science": "SELECT run_id FROM runs ANTI JOIN plan USING (run_id)",
    "zero_tokens": "SELECT run_id FROM done WHERE output_tokens = 0 AND n_calls > 0",
    "unknown_endings": "SELECT run_id FROM runs WHERE failure_class = 'unknown_ending'",
    "stale_grades": "SELECT run_id FROM done JOIN grades g USING (run_id) "
    "WHERE coalesce(g.patch_sha256, '') <> coalesce(done.patch_sha256, '')",
    "half_graded": "SELECT run_id FROM done ANTI JOIN grades USING (run_id)",
    "grade_infra": _GRADED_AS.format("grade_infra"),
    "grade_timeout": _GRADED_AS.format("grade_timeout"),
    "wall_limit": "SELECT run_id FROM done WHERE failure_class = 'limit_time'",
    "window": "SELECT run_id FROM done WHERE failure_class = 'limit_context'",
    "shrunk_prompts": SHRUNK,
    "impossible_counts": "SELECT DISTINCT run_id FROM calls SEMI JOIN done USING (run_id) "
    "WHERE greatest(cached_tokens, lcp_tokens) > prompt_tokens",
    "unknown_counts": "SELECT DISTINCT run_id FROM calls SEMI JOIN done USING (run_id) "
    "WHERE prompt_tokens IS NULL AND (error IS NULL OR reply IS NOT NULL)",
}
"""Problem to the runs that it counts."""


def shrunk_prompts(connection: duckdb.DuckDBPyConnection) -> Iterator[Problem]:
    """Yield the problem of a server that drops messages in silence, where there is one."""
    n = len(_run_ids(connection, SHRUNK))
    if n:
        yield Problem(
            code="shrunk_prompts",
            sentence=f"in {n} runs a prompt got shorter although nothing was edited: the server "
            "probably left old messages out",
            remedy="ask it with python -m pipeline.doctor --server URL; such runs saw less than "
            "their arm says, so serve a larger window and run them again",
            blocks=False,
        )


def with_runs(
    connection: duckdb.DuckDBPyConnection, problems: Iterable[Problem]
) -> Iterator[Problem]:
    """Yield each problem with the runs that it counts, the first of them in its sentence."""
    for problem in problems:
        query = RUNS_OF.get(problem.code)
        runs = () if query is None else _run_ids(connection, query)
        if not runs:
            yield problem
            continue
        more = f", ... (all in tables/{TABLE}.csv)" if len(runs) > NAMED else ""
        sentence = f"{problem.sentence}: {', '.join(runs[:NAMED])}{more}"
        yield replace(problem, sentence=sentence, runs=runs)


def _run_ids(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[str, ...]:
    rows = connection.execute(f"SELECT DISTINCT run_id FROM ({query}) ORDER BY 1").fetchall()
    return tuple(str(run_id) for (run_id,) in rows)
