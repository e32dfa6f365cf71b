"""Which runs the gate's counts are about: the first few in its sentence, all of them in a table.

Owns one query for each problem that is a count of runs, and the check that needs one: prompts that
shrank although nothing was edited, which is what a server does that drops old messages in silence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import duckdb

from pipeline.analysis.problem import Problem
from pipeline.plural import plural

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
SELECT run_id FROM steps JOIN done USING (run_id)
WHERE prompt_tokens < before AND n_edits = n_edits_before
  AND coalesce(template_dropped_tokens, 0) = 0 AND evidence IN ('live', 'sim')
"""
"""Between two steps without an edit a history only grows, unless the template drops reasoning. Who
edited other people's runs, and when, is not on record."""

_MISSING = "SELECT run_id FROM plan ANTI JOIN done USING (run_id)"
_GRADED_AS = "SELECT run_id FROM done JOIN grades USING (run_id) WHERE grade_class = '{}'"
_VERDICT = """
SELECT run_id FROM done WHERE TRY(json_extract_string(extra, '$.treatment.verdict')) = '{}'
"""

RUNS_OF = {
    "missing_runs": f"{_MISSING} ANTI JOIN ended_arms USING (arm)",
    "ended_early": _MISSING,
    "lost_pairs": f"""
{_MISSING} UNION SELECT run_id FROM done ANTI JOIN
  (SELECT run_id FROM verdicts WHERE grade_class <> 'grade_infra') USING (run_id)
WHERE (SELECT count(*) FROM verdicts) > 0""",
    "mixed_science": "SELECT run_id FROM runs ANTI JOIN plan USING (run_id)",
    "tally": "SELECT run_id FROM runs GROUP BY run_id HAVING count(*) > 1",
    "zero_tokens": "SELECT run_id FROM done WHERE output_tokens = 0 AND n_calls > 0",
    "unknown_endings": "SELECT run_id FROM runs WHERE failure_class = 'unknown_ending'",
    "stale_grades": "SELECT run_id FROM done JOIN grades g USING (run_id) "
    "WHERE coalesce(g.patch_sha256, '') <> coalesce(done.patch_sha256, '')",
    "half_graded": "SELECT run_id FROM done ANTI JOIN grades USING (run_id)",
    "grade_infra": _GRADED_AS.format("grade_infra"),
    "grade_timeout": _GRADED_AS.format("grade_timeout"),
    "mixed_images": """
SELECT run_id FROM grades WHERE instance_id IN (SELECT instance_id FROM grades
  WHERE image_digest IS NOT NULL GROUP BY instance_id HAVING count(DISTINCT image_digest) > 1)""",
    "no_statuses": "SELECT run_id FROM grades WHERE n_statuses = 0",
    "test_settings": "SELECT run_id FROM grades WHERE test_settings IS NOT NULL",
    "wall_limit": "SELECT run_id FROM done WHERE failure_class = 'limit_time'",
    "window": "SELECT run_id FROM done WHERE failure_class = 'limit_context'",
    "shrunk_prompts": SHRUNK,
    "impossible_counts": "SELECT run_id FROM calls SEMI JOIN done USING (run_id) "
    "WHERE greatest(cached_tokens, lcp_tokens) > prompt_tokens",
    "unknown_counts": "SELECT run_id FROM calls SEMI JOIN done USING (run_id) "
    "WHERE prompt_tokens IS NULL AND (error IS NULL OR reply IS NOT NULL)",
    "untreated_arm": _VERDICT.format("untreated"),
    "untreated_runs": _VERDICT.format("untreated"),
    "unexpected_edits": _VERDICT.format("unexpected"),
    "treated_baseline": "SELECT run_id FROM done "
    "WHERE TRY(json_extract_string(extra, '$.treatment.edits')) <> '{}'",
    "pruner_errors": "SELECT run_id FROM done WHERE n_pruner_errors > 0",
}
"""Problem to the runs that it counts, of all models, agents and arms."""


def shrunk_prompts(connection: duckdb.DuckDBPyConnection) -> Iterator[Problem]:
    """Yield the problem of a server that drops messages in silence, where there is one."""
    n = len(_run_ids(connection, SHRUNK))
    if n:
        yield Problem(
            code="shrunk_prompts",
            sentence=f"in {plural(n, 'run')} a prompt got shorter although nothing was edited: the "
            "server probably left old messages out",
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
        runs = problem.runs or (() if query is None else _run_ids(connection, query, problem))
        named = ", ".join(run for run in runs[:NAMED] if run not in problem.sentence)
        more = f" (all in tables/{TABLE}.csv)" if len(runs) > NAMED else ""
        sentence = f"{problem.sentence}: {named}" if named else problem.sentence
        yield replace(problem, sentence=f"{sentence}{', ...' if more else ''}{more}", runs=runs)


def _run_ids(
    connection: duckdb.DuckDBPyConnection, query: str, of: Problem | None = None
) -> tuple[str, ...]:
    """Return the runs of a query, in order; those of whom a problem is of."""
    if of is not None:
        query = f"""
SELECT run_id FROM ({query}) JOIN (SELECT run_id, model, agent, arm FROM plan UNION
  SELECT run_id, model, agent, arm FROM runs) USING (run_id)
WHERE $model IN ('', model) AND $agent IN ('', agent)
  AND (len($arms) = 0 OR list_contains($arms, arm))"""
    values = {} if of is None else {"model": of.model, "agent": of.agent, "arms": list(of.arms)}
    rows = connection.execute(
        f"SELECT DISTINCT run_id FROM ({query}) ORDER BY 1", values
    ).fetchall()
    return tuple(str(run_id) for (run_id,) in rows)
