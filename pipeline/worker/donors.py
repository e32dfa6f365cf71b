"""What a run of a matched arm gets from its donors: their finished runs set its budget.

Owns reading donors back and measuring them; which runs are donors is decided where the plan is
read, what a budget does to an arm in `pipeline.spec.budget`.
"""

import threading
from collections.abc import Mapping, Sequence

from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun
from pipeline.records.pruning import prunings_of
from pipeline.records.rebuild import recorded_run
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States
from pipeline.spec.arm import ArmSpec
from pipeline.spec.budget import DonorBudget, Measured, donor_budget


class Donors:
    """The donors of a sweep's matched arms. Any thread."""

    def __init__(self, layout: Layout, donors: Mapping[str, Sequence[str]]) -> None:
        """Remember which runs are whose donors; nothing is read yet."""
        self._layout = layout
        self._donors = donors
        self._lock = threading.Lock()
        self._states = States(layout)
        self._measured: dict[str, Measured] = {}

    def budget_of(self, planned: PlannedRun, arm: ArmSpec) -> DonorBudget | None:
        """Return the budget of one run, None for an arm that is matched to no other.

        Raises:
            BudgetError: no donor has finished.
        """
        if arm.matched_to is None:
            return None
        measured = self._finished(self._donors.get(planned.run_id, ()))
        return donor_budget(arm, measured, instance_id=planned.instance_id, seed=planned.seed)

    def _finished(self, run_ids: Sequence[str]) -> list[Measured]:
        """Return the finished ones of some donors; each is read once, journals where they grew."""
        with self._lock:
            unread = [run_id for run_id in run_ids if run_id not in self._measured]
            states = self._states.refresh() if unread else {}
            for run_id in unread:
                state = states.get(run_id)
                if state is not None and state.has_result:
                    run = recorded_run(self._layout, state)
                    self._measured[run_id] = measured_from(run)
            return [self._measured[run_id] for run_id in run_ids if run_id in self._measured]


def measured_from(record: RunRecord) -> Measured:
    """Return a finished run as budgets see it; auxiliary calls count, failed ones do not."""
    prompts = [c.prompt_tokens for c in record.calls if c.prompt_tokens is not None]
    return Measured(
        arm=record.arm,
        instance_id=record.instance_id,
        seed=record.seed,
        mean_prompt=sum(prompts) / len(prompts) if prompts else 0.0,
        peak=float(max(prompts, default=0)),
        removed_tokens=float(sum(p.tokens for p in prunings_of(record).values())),
        total_input=float(sum(prompts)),
        capped=record.failure_class.value.startswith("limit_"),
    )
