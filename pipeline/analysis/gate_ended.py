"""Whether an arm that was ended early was ended by a planned look.

The runs that it does not have are then neither missing nor lost; without such a look they are.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipeline.analysis.decisions import Decision, decisions
from pipeline.analysis.outcomes import Group
from pipeline.analysis.problem import Problem
from pipeline.plural import plural
from pipeline.spec.analysis import AnalysisPlan


def ended_early(
    groups: Sequence[Group], plan: AnalysisPlan, ended: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield what is to be said of each arm that was ended before its planned runs were made.

    Args:
        groups: of the sweep.
        plan: with the looks, if any were planned.
        ended: arm to the time at which it was ended.
    """
    for group in groups:
        decided = {d.arm: d for d in _decided(group, plan)}
        for arm in sorted(group.arms.keys() & ended.keys()):
            n_missing = int(np.sum(group.arms[arm].planned & ~group.arms[arm].done))
            if not n_missing:
                continue
            why = (
                _reference_ended(decided)
                if arm == plan.reference
                else _look_ended(decided.get(arm))
            )
            early = plural(n_missing, "run")
            said = f"{arm} ({group.title}) was ended at {ended[arm]}, {early} before"
            yield Problem(
                code="ended_early",
                arms=(arm,),
                sentence=f"{said} its last one: {why or 'no planned look says so'}",
                remedy="its result is that of the look, with the adjusted interval"
                if why
                else f"remove its file in ended_arms/ and launch the sweep again: stopping {arm} "
                "when it looked good or bad is no result",
                blocks=why is None,
            )


def _decided(group: Group, plan: AnalysisPlan) -> list[Decision]:
    if not plan.looks or plan.reference not in group.arms:
        return []
    return decisions(group, plan)


def _look_ended(decision: Decision | None) -> str | None:
    """Return the look that ended an arm, in words; None where none did."""
    return decision.sentence if decision is not None and decision.stops else None


def _reference_ended(decided: Mapping[str, Decision]) -> str | None:
    if decided and all(d.stops for d in decided.values()):
        return "every arm that is compared with it has stopped"
    return None
