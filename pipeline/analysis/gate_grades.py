"""Whether the grades can be counted: one harness, one image an instance, none stale or missing."""

from collections.abc import Mapping, Sequence

import duckdb

from pipeline.analysis.problem import Problem
from pipeline.analysis.tables import count_in
from pipeline.analysis.tally import TallyRow
from pipeline.plural import plural
from pipeline.records.failure import GradeClass

_MIXED = (
    ("mixed_harness", "grades", "split_part(harness_version, ':', 1)",
     "grades of several harness versions",
     "grade again with one version: python -m pipeline.grade RESULTS", True),
    ("mixed_evidence", "done", "evidence", "evidence of several kinds",
     "simulated, replayed and live runs never mix: analyse them in folders of their own", True),
    ("mixed_counters", "done", "token_counter", "token counts of several counters",
     "server-reported tokens are comparable all the same; offline counts are not", False),
    ("mixed_versions", "done", "versions", "runs made with different package versions",
     "see sweep.lock.yaml; within a pair both arms usually share theirs", False),
)  # fmt: skip


def mixed_versions(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return what was not made by one harness, counter or version, with the runs of the fewer."""
    found = []
    for code, table, column, what, remedy, blocks in _MIXED:
        groups = connection.execute(
            f"SELECT CAST({column} AS VARCHAR) AS held, list(DISTINCT run_id ORDER BY run_id) "
            f'FROM "{table}" WHERE held IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1'
        ).fetchall()
        if len(groups) > 1:
            shown = ", ".join(
                f"{held if len(held) < 40 else f'{held[:37]}...'} ({plural(len(runs), 'run')})"
                for held, runs in groups[:4]
            )
            problem = Problem(
                code=code,
                sentence=f"the sweep holds {what}, {shown}; not as most are",
                remedy=remedy,
                blocks=blocks,
                runs=tuple(sorted(run for _, runs in groups[1:] for run in runs)),
            )
            found.append(problem)
    return found


def mixed_images(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return instances that were graded in more than one image."""
    n = count_in(
        connection,
        "SELECT count(*) FROM (SELECT instance_id FROM grades WHERE image_digest IS NOT NULL "
        "GROUP BY instance_id HAVING count(DISTINCT image_digest) > 1)",
    )
    if not n:
        return []
    return [
        Problem(
            code="mixed_images",
            sentence=f"{plural(n, 'instance was', 'instances were')} graded in more than one image",
            remedy="stage one image an instance and grade again: python -m pipeline.grade RESULTS",
        )
    ]


def other_images(connection: duckdb.DuckDBPyConnection, locked: Mapping[str, str]) -> list[Problem]:
    """Return instances that were graded in another image than the sweep was locked with."""
    graded_in = connection.execute(
        "SELECT DISTINCT instance_id, image_digest FROM grades WHERE image_digest IS NOT NULL"
    ).fetchall()
    others = {name for name, digest in graded_in if locked.get(name, digest) != digest}
    if not others:
        return []
    return [
        Problem(
            code="other_images",
            sentence=f"{plural(len(others), 'instance was', 'instances were')} graded in another "
            f"image than the sweep was locked with ({', '.join(sorted(others)[:3])})",
            remedy="stage the images of sweep.lock.yaml again and launch into a new folder",
        )
    ]


def grade_problems(tally: Sequence[TallyRow]) -> list[Problem]:
    """Return what is ungraded, half graded, stale, or failed on our side."""
    found = []
    grade_again = "grade it: python -m pipeline.grade RESULTS"
    stale = sum(row.grades["stale"] for row in tally)
    if stale:
        found.append(
            Problem(
                code="stale_grades",
                sentence=f"{plural(stale, 'grade is', 'grades are')} of another patch than "
                "the run's",
                remedy=grade_again,
            )
        )
    n_ungraded = sum(row.grades["ungraded"] for row in tally)
    if n_ungraded and n_ungraded == sum(row.done for row in tally):
        found.append(
            Problem(
                code="no_grades",
                sentence="nothing is graded yet: solve rates are unknown, tokens are not",
                remedy=grade_again,
                blocks=False,
            )
        )
    elif n_ungraded:
        found.append(
            Problem(
                code="half_graded",
                sentence=f"{plural(n_ungraded, 'finished run is', 'finished runs are')} not graded",
                remedy=grade_again,
            )
        )
    broken = sum(row.grades[GradeClass.GRADE_INFRA.value] for row in tally)
    if broken:
        found.append(
            Problem(
                code="grade_infra",
                sentence=f"grading failed on our side for {plural(broken, 'run')}: these count as "
                "missing",
                remedy=grade_again,
            )
        )
    timeouts = sum(row.grades[GradeClass.GRADE_TIMEOUT.value] for row in tally)
    if timeouts:
        found.append(
            Problem(
                code="grade_timeout",
                sentence=f"{plural(timeouts, 'grading')} ran out of time twice: unresolved",
                remedy="tables/tally.csv has them by arm",
                blocks=False,
            )
        )
    return found


_LOOK_AT = (
    ("no_statuses", "no_status",
     "gradings left a complete log in which no test has a status, and count by their class",
     "look at their logs: the tests may not have run, or a patch may break their collection"),
    ("test_settings", "test_settings",
     "graded patches change how tests are run (conftest.py, setup.cfg, ...)",
     "look at them: the column test_settings of the table grades names the files"),
)  # fmt: skip


def worth_a_look(tally: Sequence[TallyRow]) -> list[Problem]:
    """Count gradings that somebody should look at, by arm: none is wrong for that."""
    found = []
    for code, column, what, remedy in _LOOK_AT:
        by_arm = {row.where: int(getattr(row, column)) for row in tally}
        if not sum(by_arm.values()):
            continue
        arms = ", ".join(f"{n:,} of {arm}" for arm, n in by_arm.items() if n)
        sentence = f"{what}: {arms}"
        found.append(Problem(code=code, sentence=sentence, remedy=remedy, blocks=False))
    return found
