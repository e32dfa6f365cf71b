"""What a run's record says about its treatment: the policy run again, and the budget it met.

Kept under `extra`, so that a baseline cannot silently run pruned, nor a treatment untreated.
"""

from typing import Any

from pipeline.agent.rollout import RunOutcome
from pipeline.replaying.treatment import treatment_of
from pipeline.spec.budget import DonorBudget, Fitted
from pipeline.views.policy import Policy
from pipeline.views.trajectory import Trajectory


def treatment_facts(policy: Policy, outcome: RunOutcome) -> dict[str, Any]:
    """Return the verdict on a finished run and the tally of its edits, as JSON data."""
    trajectory = Trajectory(
        plan_events=list(outcome.plan_events), decisions=list(outcome.decisions)
    )
    trajectory.append(outcome.messages)
    found = treatment_of(
        policy,
        trajectory,
        [call.message_count for call in outcome.calls if call.kind == "step"],
        [edit for call in outcome.calls for edit in call.edits],
    )
    judged = {"n_judged": found.n_judged, "n_pruner_errors": found.n_pruner_errors}
    return {
        **(judged if found.n_judged else {}),
        "verdict": found.verdict.value,
        "n_asked": found.n_asked,
        "n_unasked": found.n_unasked,
        "edits": dict(found.by_reason),
    }


def budget_facts(met: Fitted, donors: DonorBudget | None) -> dict[str, Any]:
    """Return what was asked for and what the pilot's value gave, as JSON data."""
    facts: dict[str, Any] = {
        "parameter": met.parameter,
        "value": met.value,
        "match_on": met.arm.match_on,
        "requested_tokens": met.requested_tokens,
        "pilot_tokens": met.achieved_tokens,
    }
    if donors is not None:
        facts |= {"donor_seeds": donors.seeds, "capped_donor_seeds": donors.capped_seeds}
    return facts
