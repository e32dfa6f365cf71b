"""Token counts that are impossible or unknown, pointed out since sums cap or omit them."""

from collections.abc import Iterator

import duckdb

from pipeline.analysis.problem import Problem
from pipeline.plural import plural

_IMPOSSIBLE = """
SELECT count(*), count(DISTINCT run_id) FROM calls SEMI JOIN done USING (run_id)
WHERE greatest(cached_tokens, lcp_tokens) > prompt_tokens
"""
_UNKNOWN = """
SELECT count(*) FILTER (prompt_tokens IS NULL), count(*),
  count(DISTINCT run_id) FILTER (prompt_tokens IS NULL)
FROM calls SEMI JOIN done USING (run_id)
WHERE prompt_tokens IS NOT NULL OR error IS NULL OR reply IS NOT NULL
"""
"""Of the calls that were answered."""


def count_problems(connection: duckdb.DuckDBPyConnection) -> Iterator[Problem]:
    """Yield what the token counts of calls leave in doubt; nothing of it refuses the sweep."""
    n, n_runs = connection.execute(_IMPOSSIBLE).fetchall()[0]
    if n:
        yield Problem(
            code="impossible_counts",
            sentence=f"more cached than prompt tokens are reported by {plural(n, 'call')} of "
            f"{plural(n_runs, 'run')}, priced as all cached",
            remedy="look at the server's usage fields: these runs' costs are too low",
            blocks=False,
        )
    unknown, answered, n_runs = connection.execute(_UNKNOWN).fetchall()[0]
    if unknown:
        yield Problem(
            code="unknown_counts",
            sentence=f"{unknown:,} of {plural(answered, 'answered call')} without token counts, in "
            f"{plural(n_runs, 'run')}; sums are over the others",
            remedy="runs.n_counted_calls beside n_calls says which runs count too little",
            blocks=False,
        )
