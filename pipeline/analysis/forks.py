"""What runs that began with another one shared: how many there are, what was not sent again.

Outcomes, tokens and steps of such runs are what they would have been by themselves; what arms do
to themselves between seeds is judged on fresh runs only (`fresh_only`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.outcomes import ArmOutcomes, Group


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkTally:
    """The finished runs of one arm by how they began; tokens as if run, and as run."""

    arm: str
    n_runs: int
    n_forked: int
    n_never_acted: int
    """Of these, the runs that are another arm's to the end."""
    n_differed: int
    """Runs that ran fresh after all: a command did something else again, or the run to begin with
    had no result (`runs.fork_difference`)."""
    n_calls: int
    n_calls_made: int
    input_tokens: float
    input_tokens_sent: float
    output_tokens: float
    output_tokens_made: float


_TALLY = """
SELECT arm, count(*), count(forked_from),
  count(*) FILTER (forked_at_call >= n_calls), count(fork_difference),
  sum(n_calls), sum(n_calls - least(coalesce(forked_at_call, 0), n_calls)),
  sum(input_tokens), sum(input_tokens - coalesce(shared_input_tokens, 0)),
  sum(output_tokens), sum(output_tokens - coalesce(shared_output_tokens, 0))
FROM done WHERE benchmark = ? AND model = ? AND agent = ?
GROUP BY arm ORDER BY arm
"""


def fork_tallies(connection: duckdb.DuckDBPyConnection, group: Group) -> Sequence[ForkTally]:
    """Return one tally an arm; empty where no run began, or was to begin, with another one."""
    key = (group.benchmark, group.model, group.agent)
    tallies = [
        ForkTally(
            arm=arm, n_runs=runs, n_forked=forked, n_never_acted=never, n_differed=differed,
            n_calls=calls, n_calls_made=made,
            input_tokens=tokens_in, input_tokens_sent=sent,
            output_tokens=tokens_out, output_tokens_made=written,
        )
        for arm, runs, forked, never, differed, calls, made, tokens_in, sent, tokens_out, written
        in connection.execute(_TALLY, key).fetchall()
    ]  # fmt: skip
    return tallies if any(t.n_forked or t.n_differed for t in tallies) else ()


def fresh_only(arm: ArmOutcomes, values: FloatArray) -> FloatArray:
    """Return an arm's values without those of runs that began with another arm's."""
    return np.where(np.isnan(arm.metrics["shared_input_tokens"]), values, np.nan)
