"""Where every planned run went. The counts of a row add up exactly, or the gate says so."""

from dataclasses import dataclass

import duckdb

from pipeline.records.failure import FailureClass, GradeClass

ENDINGS = (*(c.value for c in FailureClass), "not run")
GRADES = (*(c.value for c in GradeClass), "ungraded", "stale")


@dataclass(frozen=True, kw_only=True, slots=True)
class TallyRow:
    """Where one arm's planned runs went. `endings` adds up to `planned`, `grades` to `done`."""

    model: str
    agent: str
    arm: str
    planned: int
    endings: dict[str, int]
    """Failure class (or `not run`) to count."""
    done: int
    grades: dict[str, int]
    """Grade class (or `ungraded`, `stale`) to count, of the runs that are done."""
    limit_time: int
    loops: int
    no_status: int
    """Gradings with a complete log in which no test has a status."""
    test_settings: int
    """Graded patches that change how tests are run."""

    @property
    def where(self) -> str:
        """The arm with its model and agent, for sentences."""
        return f"{self.arm} ({self.model}, {self.agent})"

    @property
    def adds_up(self) -> bool:
        """True where every planned run is in exactly one place."""
        return sum(self.endings.values()) == self.planned and sum(self.grades.values()) == self.done


_TALLY = """
WITH wanted AS (
  SELECT run_id, model, agent, arm FROM plan
  UNION ALL
  SELECT run_id, model, agent, arm FROM runs WHERE (SELECT count(*) FROM plan) = 0
)
SELECT w.model, w.agent, w.arm, coalesce(r.failure_class, 'not run') AS ending,
  CASE WHEN r.run_id IS NULL OR r.failure_class LIKE 'infra%' THEN NULL
       WHEN g.run_id IS NULL THEN 'ungraded'
       WHEN coalesce(g.patch_sha256, '') <> coalesce(r.patch_sha256, '') THEN 'stale'
       ELSE coalesce(g.grade_class, 'ungraded') END AS grade,
  count(*) AS n, sum(CASE WHEN r.loop THEN 1 ELSE 0 END) AS loops,
  count(*) FILTER (g.n_statuses = 0) AS no_status,
  count(*) FILTER (g.test_settings IS NOT NULL) AS test_settings
FROM wanted w LEFT JOIN runs r USING (run_id) LEFT JOIN grades g USING (run_id)
GROUP BY ALL ORDER BY ALL
"""


def tally_of(connection: duckdb.DuckDBPyConnection) -> list[TallyRow]:
    """Return one row for each model, agent and arm, in order."""
    planned = (
        connection.execute(
            "SELECT model, agent, arm, count(*) FROM plan GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        or connection.execute(
            "SELECT model, agent, arm, count(*) FROM runs GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    )
    cells = connection.execute(_TALLY).fetchall()
    rows = []
    for model, agent, arm, n_planned in planned:
        endings, grades = dict.fromkeys(ENDINGS, 0), dict.fromkeys(GRADES, 0)
        loops = no_status = test_settings = 0
        own = (cell[3:] for cell in cells if cell[:3] == (model, agent, arm))
        for ending, grade, n, n_loops, n_no_status, n_test_settings in own:
            endings[ending] = endings.get(ending, 0) + n
            loops += n_loops
            no_status += n_no_status
            test_settings += n_test_settings
            if grade is not None:
                grades[grade] = grades.get(grade, 0) + n
        rows.append(
            TallyRow(
                model=model,
                agent=agent,
                arm=arm,
                planned=n_planned,
                endings=endings,
                done=sum(n for e, n in endings.items() if _is_done(e)),
                grades=grades,
                limit_time=endings[FailureClass.LIMIT_TIME.value],
                loops=loops,
                no_status=no_status,
                test_settings=test_settings,
            )
        )
    return rows


def _is_done(ending: str) -> bool:
    return ending != "not run" and not ending.startswith("infra")
