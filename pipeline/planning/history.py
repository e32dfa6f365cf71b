"""What earlier launches of a folder tell a new one: what is open, how long runs take, the cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.records.cut_short import cut_short
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun
from pipeline.records.states import RunState
from pipeline.records.usage import used_gpu_hours
from pipeline.worker.deadline import KNOWN_RUNS


@dataclass(frozen=True, kw_only=True)
class History:
    """The past of a sweep; empty for a new one."""

    todo: Sequence[PlannedRun] = ()
    """Runs without a valid record."""
    wall_s: Sequence[float] = ()
    """How long the runs took that have one."""
    used_gpu_hours: float = 0.0
    cut_short_s: Mapping[str, float] = field(default_factory=dict)
    """Run id to the longest time that a job gave a run in vain."""

    @property
    def mean_wall_s(self) -> float | None:
        """The mean time of a run; None until some are known."""
        known = self.wall_s
        return sum(known) / len(known) if len(known) >= KNOWN_RUNS else None


def history_of(
    layout: Layout, runs: Sequence[PlannedRun], states: Mapping[str, RunState]
) -> History:
    """Return the past of the planned `runs`, from the states of their records."""
    of_plan = [states.get(run.run_id) for run in runs]
    done = [state for state in of_plan if state is not None and state.has_result]
    return History(
        todo=[
            run for run, state in zip(runs, of_plan, strict=True) if state is None or state.to_run
        ],
        wall_s=[state.wall_s for state in done if state.wall_s is not None],
        used_gpu_hours=used_gpu_hours(layout),
        cut_short_s=cut_short(layout),
    )
