"""How far a sweep is: counts per cell, rates, time left, failures by class.

Read from the plan, the journals and the workers' status files; it needs no queue and no
accounting. Solve rates by arm are not among it: nobody looks before the sweep is complete.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.host.files import read_json
from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun
from pipeline.records.states import Progress as RunProgress
from pipeline.records.states import RunState, States

LIVE_S = 90.0
"""A status file older than this is of a worker that is gone or stuck."""


@dataclass(frozen=True, kw_only=True)
class CellProgress:
    """One row of the display."""

    model: str
    agent: str
    arm: str
    seed: int
    planned: int
    finished: int
    infra_failed: int
    graded: int
    format_errors: int = 0
    """Replies of its finished runs that could not be carried out."""
    calls_as_text: int = 0
    """Of these, with a tool call as text: the server did not read it."""


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run that did not end by itself, or whose grading did not."""

    run_id: str
    failed_as: str
    """Its failure class, or else its grade's class."""
    attempts: int
    """Of ours that failed; 0 for a failure of the agent's own code."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The sweep at one moment."""

    planned: int
    """Without the runs that no one wants any more, since their arms were ended."""
    finished: int
    """Runs with a valid record, graded or not."""
    infra_failed: int
    """Runs whose only records are infrastructure failures so far."""
    graded: int
    running: int
    failure_classes: Mapping[str, int]
    grade_classes: Mapping[str, int]
    """Over all arms together."""
    input_tokens: int
    tokens_per_s: float | None
    eta_s: float | None
    """Seconds to the last rollout at the rate so far; None until a run has finished."""
    workers: Sequence[Mapping[str, Any]] = field(default=())
    stopped: Sequence[Mapping[str, Any]] = field(default=())
    """Workers that ended of what they could not mend, with the reason."""
    cells: Sequence[CellProgress] = field(default=())
    failed: Sequence[FailedRun] = field(default=())
    """Runs to look at, with `python -m pipeline.show`."""
    damaged_journals: Sequence[str] = field(default=())
    ended_arms: Mapping[str, int] = field(default_factory=dict)
    """Arms that were ended, with the planned runs of each that are not made."""

    @property
    def all_run(self) -> bool:
        """True when every planned run has a valid record."""
        return self.finished == self.planned

    @property
    def all_graded(self) -> bool:
        """True when every planned run has a valid grade."""
        return self.graded == self.planned


def progress_of(layout: Layout, runs: Sequence[PlannedRun], states: States) -> Progress:
    """Return the sweep's progress now; `states` is kept between calls, so that this is cheap."""
    known = states.refresh()
    every = [(run, known.get(run.run_id) or RunState(run_id=run.run_id)) for run in runs]
    ended = Counter(run.arm for run, state in every if state.progress is RunProgress.ENDED)
    wanted = [(run, state) for run, state in every if state.progress is not RunProgress.ENDED]
    runs, of_plan = [run for run, _ in wanted], [state for _, state in wanted]
    workers = live_workers(layout)
    finished = [state for state in of_plan if not state.to_run]
    rate = sum(float(w.get("runs_per_s") or 0.0) for w in workers)
    token_rate = sum(float(w.get("tokens_per_s") or 0.0) for w in workers)
    left = len(of_plan) - len(finished)
    return Progress(
        planned=len(of_plan),
        finished=len(finished),
        infra_failed=sum(s.infra_attempts > 0 and s.to_run for s in of_plan),
        graded=sum(s.resolved is not None and not s.to_grade for s in finished),
        running=sum(len(w.get("in_flight") or ()) for w in workers),
        failure_classes=dict(Counter(s.failure_class.value for s in of_plan if s.failure_class)),
        grade_classes=dict(Counter(s.grade_class.value for s in of_plan if s.grade_class)),
        input_tokens=sum(s.input_tokens or 0 for s in finished),
        tokens_per_s=token_rate or None,
        eta_s=left / rate if rate > 0 else None,
        workers=workers,
        stopped=stopped_workers(layout),
        cells=_cells(runs, of_plan),
        ended_arms=dict(ended),
        failed=list(_failed(of_plan)),
        damaged_journals=sorted(states.damages),
    )


def _failed(states: Sequence[RunState]) -> Iterator[FailedRun]:
    for state in states:
        ended, graded = state.failure_class, state.grade_class
        if ended is not None and (ended.is_infra or ended is FailureClass.AGENT_ERROR):
            yield FailedRun(
                run_id=state.run_id, failed_as=ended.value, attempts=state.infra_attempts
            )
        elif graded is not None and graded in (GradeClass.GRADE_INFRA, GradeClass.GRADE_TIMEOUT):
            yield FailedRun(
                run_id=state.run_id, failed_as=graded.value, attempts=state.grade_attempts
            )


def live_workers(layout: Layout) -> list[dict[str, Any]]:
    """Return the status of every worker that reported lately."""
    return [
        {**report, "age_s": age_s}
        for report, age_s in status_files(layout)
        if age_s < LIVE_S and "stopped" not in report
    ]


def stopped_workers(layout: Layout, since_unix_s: float = 0.0) -> list[dict[str, Any]]:
    """Return what the workers left that have ended since of something they could not mend."""
    return [
        {**report, "age_s": age_s}
        for report, age_s in status_files(layout)
        if "stopped" in report and report["updated_at"] >= since_unix_s
    ]


def status_files(layout: Layout) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield every worker's last report and its age in seconds.

    A file that is no report is passed over: workers write theirs again, and nothing rests on it.
    """
    for path in sorted(layout.status.glob("*.json")):
        try:
            age_s, report = time.time() - path.stat().st_mtime, read_json(path)
        except (FileNotFoundError, ValueError):
            continue  # its worker ended between the listing and the look
        if isinstance(report, dict):
            yield report, age_s


def _cells(runs: Sequence[PlannedRun], states: Sequence[RunState]) -> list[CellProgress]:
    groups: dict[tuple[str, str, str, int], list[RunState]] = {}
    for run, state in zip(runs, states, strict=True):
        groups.setdefault((run.model, run.agent, run.arm, run.seed), []).append(state)
    return [
        CellProgress(
            model=model,
            agent=agent,
            arm=arm,
            seed=seed,
            planned=len(members),
            finished=sum(not s.to_run for s in members),
            infra_failed=sum(s.infra_attempts > 0 and s.to_run for s in members),
            graded=sum(s.resolved is not None and not s.to_grade for s in members),
            format_errors=sum(s.n_format_errors or 0 for s in members if not s.to_run),
            calls_as_text=sum(s.n_calls_as_text or 0 for s in members if not s.to_run),
        )
        for (model, agent, arm, seed), members in sorted(groups.items())
    ]
