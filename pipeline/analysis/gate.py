"""Is the sweep valid? The tally, which must add up exactly, and the gate before any result.

A sweep that fails is refused, or analysed under a banner when that was asked for. A problem says
what is wrong, how much of it there is, and which command mends it. Nothing here drops a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pipeline.analysis.counts import count_problems
from pipeline.analysis.gate_grades import (
    grade_problems,
    mixed_images,
    mixed_versions,
    other_images,
    worth_a_look,
)
from pipeline.analysis.gate_limits import wall_limit, window_limit
from pipeline.analysis.gate_plan import (
    idle_arms,
    missing_runs,
    no_lock,
    no_plan,
    nothing_there,
    silent_runs,
    strange_runs,
    twin_runs,
    unknown_endings,
)
from pipeline.analysis.gate_runs import shrunk_prompts
from pipeline.analysis.problem import Problem
from pipeline.analysis.tally import TallyRow, tally_of
from pipeline.analysis.treatment import ArmTreatment, mistreated, treatments_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """What was found before any result was looked at."""

    problems: tuple[Problem, ...]
    tally: tuple[TallyRow, ...]
    treatments: tuple[ArmTreatment, ...]

    @property
    def passes(self) -> bool:
        """True where nothing blocks."""
        return not any(p.blocks for p in self.problems)


class InvalidSweepError(Exception):
    """The gate refused the sweep; the message lists every problem with its remedy."""

    def __init__(self, gate: Gate, *, runs_table: str = "") -> None:
        named = f"\nthe runs that these count: {runs_table}" if runs_table else ""
        super().__init__(refusal(gate) + named)
        self.gate = gate


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
    ended = [arm for (arm,) in connection.execute("SELECT arm FROM ended_arms").fetchall()]
    found = [
        *(no_plan(connection) if has_lock else no_lock()),
        *nothing_there(tally),
        *missing_runs(tally, has_lock=has_lock, ended_arms=ended),
        *strange_runs(connection),
        *twin_runs(connection),
        *silent_runs(connection),
        *unknown_endings(connection),
        *count_problems(connection),
        *mixed_versions(connection),
        *mixed_images(connection),
        *other_images(connection, image_digests or {}),
        *shrunk_prompts(connection),
        *idle_arms(connection, acting_arms),
        *mistreated(treatments, baseline_arms),
        *grade_problems(tally),
        *worth_a_look(tally),
        *wall_limit(tally),
        *window_limit(tally, blocks=not window_may_bind),
    ]
    for row in tally:
        if not row.adds_up:
            found.append(
                Problem(
                    code="tally",
                    sentence=f"the tally of {row.where} does not add up to its plan",
                    model=row.model,
                    agent=row.agent,
                    arms=(row.arm,),
                    remedy="run ids are repeated in the tables; compact the journals again",
                )
            )
    return Gate(
        problems=tuple(found),
        tally=tuple(tally),
        treatments=tuple(treatments),
    )


def refusal(gate: Gate) -> str:
    """Return what to tell someone whose sweep was refused."""
    lines = ["this sweep does not pass the validity gate:"]
    lines += [f"  - {p.sentence}\n    {p.remedy}" for p in gate.problems if p.blocks]
    lines.append(
        "to see results all the same: --allow-invalid (the report is marked as not valid and "
        "repeats this list)"
    )
    return "\n".join(lines)
