"""How the prompts of arms with `cache: splice` were come by, as the server said: docs/splice.md."""

from dataclasses import dataclass

import duckdb

from pipeline.analysis.outcomes import Group

_SUMS = """
SELECT sum(prompt_tokens), sum(reused_tokens), sum(rotated_tokens), sum(recomputed_tokens),
  sum(coalesce(rebilled_tokens, 0)), count(*)
FROM calls WHERE rotated_tokens IS NOT NULL AND run_id IN (SELECT unnest(?))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSpliceUse:
    """Prompt tokens of one arm's finished runs, over the calls whose server told."""

    arm: str
    prompt_tokens: int
    reused_tokens: int
    rotated_tokens: int
    recomputed_tokens: int
    rebilled_tokens: int
    """What a prefix cache would have had to compute again, counted offline."""
    n_calls: int


def splice_uses(connection: duckdb.DuckDBPyConnection, group: Group) -> list[ArmSpliceUse]:
    """Return what became of the prompts of every arm that spliced."""
    found = []
    for name, arm in group.arms.items():
        run_ids = [str(run_id) for run_id in arm.run_id[arm.done]]
        sums = connection.execute(_SUMS, [run_ids]).fetchone()
        if sums is None or not sums[-1]:
            continue
        prompt, reused, rotated, recomputed, rebilled, n_calls = map(int, sums)
        found.append(
            ArmSpliceUse(
                arm=name,
                prompt_tokens=prompt,
                reused_tokens=reused,
                rotated_tokens=rotated,
                recomputed_tokens=recomputed,
                rebilled_tokens=rebilled,
                n_calls=n_calls,
            )
        )
    return found
