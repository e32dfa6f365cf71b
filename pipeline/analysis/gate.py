"""Is the sweep valid? The tally, which must add up exactly, and the gate before any result.

A sweep that fails is refused, or analysed under a banner when that was asked for. A problem says
what is wrong, how much of it there is, and which command mends it. Nothing here drops a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pipeline.analysis.counts import count_problems
from pipeline.analysis.gate_runs import shrunk_prompts, with_runs
from pipeline.analysis.problem import Problem
from pipeline.analysis.tally import TallyRow, tally_of
from pipeline.analysis.treatment import ArmTreatment, mistreated, treatments_of
from pipeline.records.failure import FailureClass, GradeClass

MAX_LIMIT_SHARE = 0.005
"""Limits are not meant to bind: more runs than this ended by the wall limit, or by the window in
one arm but not in another, and they did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """What was found before any result was looked at."""

    problems: tuple[Problem, ...]
    tally: tuple[TallyRow, ...]
    treatments: tuple[ArmTreatment, ...]
    n_ungraded: int
    n_graded: int

    @property
    def passes(self) -> bool:
        """True where nothing blocks."""
        return not any(p.blocks for p in self.problems)


class InvalidSweepError(Exception):
    """The gate refused the sweep; the message lists every problem with its remedy."""


def checked(
    connection: duckdb.DuckDBPyConnection,
    *,
    has_lock: bool,
    acting_arms: Sequence[str] = (),
    baseline_arms: Sequence[str] = (),
    image_digests: Mapping[str, str] | None = None,
    window_may_bind: bool = False,
) -> Gate:
    """Return the gate's findings for the open tables.

    Args:
        connection: from `open_tables`.
        has_lock: whether the folder says what it was launched with.
        acting_arms: arms whose policy is meant to take something away.
        baseline_arms: arms that are meant to show everything.
        image_digests: instance id to the digest that the sweep was locked with.
        window_may_bind: the plan says that the window is part of what is studied.
    """
    tally, treatments = tally_of(connection), treatments_of(connection)
    n_graded = sum(sum(n for c, n in row.grades.items() if c in _VALID_GRADES) for row in tally)
    n_ungraded = sum(row.grades["ungraded"] for row in tally)
    found = [
        *(_no_plan(connection) if has_lock else _no_lock()),
        *_nothing_there(tally),
        *_missing(tally, has_lock=has_lock),
        *_strangers(connection),
        *_twins(connection),
        *_silent_runs(connection),
        *_unknown_endings(connection),
        *count_problems(connection),
        *_mixed(connection),
        *_mixed_images(connection),
        *_other_images(connection, image_digests or {}),
        *shrunk_prompts(connection),
        *_idle_arms(connection, acting_arms),
        *mistreated(treatments, baseline_arms),
        *_grades(tally, n_graded=n_graded, n_ungraded=n_ungraded),
        *_worth_a_look(connection, tally),
        *_wall_limit(tally),
        *_window(tally, blocks=not window_may_bind),
    ]
    for row in tally:
        if not row.adds_up:
            found.append(
                Problem(
                    code="tally",
                    sentence=f"the tally of {row.arm} ({row.model}) does not add up to its plan",
                    remedy="run ids are repeated in the tables; compact the journals again",
                )
            )
    return Gate(
        problems=tuple(with_runs(connection, found)),
        tally=tuple(tally),
        treatments=tuple(treatments),
        n_ungraded=n_ungraded,
        n_graded=n_graded,
    )


_VALID_GRADES = frozenset(c.value for c in GradeClass) - {GradeClass.GRADE_INFRA.value}


def refusal(gate: Gate) -> str:
    """Return what to tell someone whose sweep was refused."""
    lines = ["this sweep does not pass the validity gate:"]
    lines += [f"  - {p.sentence}\n    {p.remedy}" for p in gate.problems if p.blocks]
    lines.append(
        "to see results all the same: --allow-invalid (the report is marked as not valid and "
        "repeats this list)"
    )
    return "\n".join(lines)


def _no_plan(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    if _number(connection, "SELECT count(*) FROM plan"):
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


def _no_lock() -> list[Problem]:
    return [
        Problem(
            code="no_lock",
            sentence="the folder has no sweep.lock.yaml: what was planned is unknown",
            remedy="ingested runs have none: --allow-invalid describes them, as exploratory",
        )
    ]


def _nothing_there(tally: Sequence[TallyRow]) -> list[Problem]:
    if any(row.done for row in tally):
        return []
    return [
        Problem(
            code="no_runs",
            sentence="no run is finished yet",
            remedy="see how far the sweep is: python -m pipeline.status RESULTS",
        )
    ]


def _missing(tally: Sequence[TallyRow], *, has_lock: bool) -> list[Problem]:
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


def _strangers(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    n = _number(
        connection,
        "SELECT count(*) FROM runs ANTI JOIN plan USING (run_id) "
        "WHERE (SELECT count(*) FROM plan) > 0",
    )
    if not n:
        return []
    return [
        Problem(
            code="mixed_science",
            sentence=f"{n} runs are not of this plan: another science config made them",
            remedy="analyse the sweep that they belong to in its own results folder",
        )
    ]


_TWINS = """
SELECT min(run_id), max(run_id) FROM done
GROUP BY benchmark, model, agent, arm, seed, instance_id HAVING count(DISTINCT run_id) > 1
ORDER BY ALL
"""


def _twins(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Say where one cell has two valid runs of one instance: which of them counts is nobody's."""
    pairs = connection.execute(_TWINS).fetchall()
    if not pairs:
        return []
    named = "; ".join(f"{one} and {other}" for one, other in pairs[:3])
    return [
        Problem(
            code="twin_runs",
            sentence=f"{len(pairs)} places in the design (cell, instance, seed) hold more than one "
            f"valid run: {named}{'; ...' if len(pairs) > 3 else ''}",
            remedy="keep one of each: analyse them in the results folders they were made for",
        )
    ]


def _silent_runs(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    n = _number(connection, "SELECT count(*) FROM done WHERE output_tokens = 0 AND n_calls > 0")
    if not n:
        return []
    return [
        Problem(
            code="zero_tokens",
            sentence=f"{n} runs generated no token at all",
            remedy="the server answered with nothing: read its log, then run them again",
        )
    ]


_UNKNOWN = """
SELECT exit_status, count(*), min(coalesce(failure, '')) FROM runs
WHERE failure_class = 'unknown_ending' GROUP BY exit_status ORDER BY 2 DESC, 1
"""


def _unknown_endings(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Say which endings of recorded runs nobody here knows, in their own words."""
    rows = connection.execute(_UNKNOWN).fetchall()
    if not rows:
        return []
    named = "; ".join(f"{status} ({n}): {text.strip()[-120:]}" for status, n, text in rows[:3])
    return [
        Problem(
            code="unknown_endings",
            sentence=f"{sum(n for _, n, _ in rows)} runs ended in a way that is not known here: "
            f"{named}",
            remedy="judge them by hand: the agent's doing, or their maker's; runs.failure has all",
            blocks=False,
        )
    ]


_MIXED = (
    ("mixed_harness", "grades", "harness_version", "grades of several harness versions",
     "grade again with one version: python -m pipeline.grade RESULTS", True),
    ("mixed_evidence", "done", "evidence", "evidence of several kinds",
     "simulated, replayed and live runs never mix: analyse them in folders of their own", True),
    ("mixed_counters", "done", "token_counter", "token counts of several counters",
     "server-reported tokens are comparable all the same; offline counts are not", False),
    ("mixed_versions", "done", "versions", "runs made with different package versions",
     "see sweep.lock.yaml; within a pair both arms usually share theirs", False),
)  # fmt: skip


def _mixed(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    found = []
    for code, table, column, what, remedy, blocks in _MIXED:
        values = [
            str(row[0])
            for row in connection.execute(
                f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL ORDER BY 1'
            ).fetchall()
        ]
        if len(values) > 1:
            shown = ", ".join(v if len(v) < 40 else f"{v[:37]}..." for v in values[:4])
            sentence = f"the sweep holds {what}: {shown}"
            found.append(Problem(code=code, sentence=sentence, remedy=remedy, blocks=blocks))
    return found


def _mixed_images(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    n = _number(
        connection,
        "SELECT count(*) FROM (SELECT instance_id FROM grades WHERE image_digest IS NOT NULL "
        "GROUP BY instance_id HAVING count(DISTINCT image_digest) > 1)",
    )
    if not n:
        return []
    return [
        Problem(
            code="mixed_images",
            sentence=f"{n} instances were graded in more than one image",
            remedy="stage one image an instance and grade again: python -m pipeline.grade RESULTS",
        )
    ]


def _other_images(
    connection: duckdb.DuckDBPyConnection, locked: Mapping[str, str]
) -> list[Problem]:
    graded_in = connection.execute(
        "SELECT DISTINCT instance_id, image_digest FROM grades WHERE image_digest IS NOT NULL"
    ).fetchall()
    others = {name for name, digest in graded_in if locked.get(name, digest) != digest}
    if not others:
        return []
    return [
        Problem(
            code="other_images",
            sentence=f"{len(others)} instances were graded in another image than the sweep was "
            f"locked with ({', '.join(sorted(others)[:3])})",
            remedy="stage the images of sweep.lock.yaml again and launch into a new folder",
        )
    ]


def _idle_arms(connection: duckdb.DuckDBPyConnection, acting_arms: Sequence[str]) -> list[Problem]:
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


def _grades(tally: Sequence[TallyRow], *, n_graded: int, n_ungraded: int) -> list[Problem]:
    found = []
    grade_again = "grade it: python -m pipeline.grade RESULTS"
    stale = sum(row.grades["stale"] for row in tally)
    if stale:
        found.append(
            Problem(
                code="stale_grades",
                sentence=f"{stale} grades are of another patch than the run's",
                remedy=grade_again,
            )
        )
    if n_ungraded and not n_graded:
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
                sentence=f"{n_ungraded} finished runs are not graded",
                remedy=grade_again,
            )
        )
    broken = sum(row.grades[GradeClass.GRADE_INFRA.value] for row in tally)
    if broken:
        found.append(
            Problem(
                code="grade_infra",
                sentence=f"grading failed on our side for {broken} runs; they count as missing",
                remedy=grade_again,
            )
        )
    timeouts = sum(row.grades[GradeClass.GRADE_TIMEOUT.value] for row in tally)
    if timeouts:
        found.append(
            Problem(
                code="grade_timeout",
                sentence=f"{timeouts} gradings ran out of time twice and count as unresolved",
                remedy="they are listed in tables/tally.csv",
                blocks=False,
            )
        )
    return found


_LOOK_AT = (
    ("no_statuses", "no_status", "n_statuses = 0",
     "gradings left a complete log in which no test has a status, and count by their class",
     "look at their logs: the tests may not have run, or a patch may break their collection"),
    ("test_settings", "test_settings", "test_settings IS NOT NULL",
     "graded patches change how tests are run (conftest.py, setup.cfg, ...)",
     "look at them: the column test_settings of the table grades names the files"),
)  # fmt: skip


def _worth_a_look(
    connection: duckdb.DuckDBPyConnection, tally: Sequence[TallyRow]
) -> list[Problem]:
    """Count gradings that somebody should look at, by arm: none is wrong for that."""
    found = []
    for code, column, condition, what, remedy in _LOOK_AT:
        by_arm = {f"{row.arm} ({row.model})": int(getattr(row, column)) for row in tally}
        if not sum(by_arm.values()):
            continue
        first = connection.execute(
            f"SELECT run_id FROM grades WHERE {condition} ORDER BY run_id LIMIT 3"
        ).fetchall()
        arms = ", ".join(f"{n} of {arm}" for arm, n in by_arm.items() if n)
        runs = ", ".join(str(run_id) for (run_id,) in first)
        sentence = f"{sum(by_arm.values())} {what}: {arms}; the first: {runs}"
        found.append(Problem(code=code, sentence=sentence, remedy=remedy, blocks=False))
    return found


def _wall_limit(tally: Sequence[TallyRow]) -> list[Problem]:
    return [
        Problem(
            code="wall_limit",
            sentence=f"the wall limit ended {row.limit_time} of {row.done} runs of {row.arm}",
            remedy="raise agent.wall_limit_s and run them again: arms with slow calls lose by it",
        )
        for row in tally
        if row.done and row.limit_time / row.done > MAX_LIMIT_SHARE
    ]


def _window(tally: Sequence[TallyRow], *, blocks: bool) -> Iterator[Problem]:
    """Yield, by model, a window that ended runs of one arm more often than runs of another."""
    for model in dict.fromkeys(row.model for row in tally):
        arms = sorted((r for r in tally if r.model == model and r.done), key=_window_share)
        if arms and _window_share(arms[-1]) - _window_share(arms[0]) > MAX_LIMIT_SHARE:
            most, least = (
                f"{row.endings[_LIMIT_CONTEXT]} of {row.done} runs of {row.arm}"
                for row in (arms[-1], arms[0])
            )
            yield Problem(
                code="window",
                sentence=f"the window of {model} ended {most}, but {least}",
                remedy="raise the model's context_length and run them again; where the window is "
                "what is studied, plan for it: analysis.window_may_bind=true",
                blocks=blocks,
            )


_LIMIT_CONTEXT = FailureClass.LIMIT_CONTEXT.value


def _window_share(row: TallyRow) -> float:
    return row.endings[_LIMIT_CONTEXT] / row.done


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0
