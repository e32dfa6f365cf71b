"""Arms at the same token budget: which parameter meets a budget, and whose it is.

See docs/methods.md, Budgets.

Primary: one budget a model, met by the parameter that met it on pilot instances outside the
evaluation set. Secondary: the budget of each instance is the mean of another arm's runs on it, over
*other* seeds, since a run's own donor would leak how hard that run was. Measurements come from
pilot runs or from replay over pilot recordings; none are made here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.arms.table import KINDS
from pipeline.spec.arm import ArmSpec, MatchOn


class BudgetError(ValueError):
    """A budget cannot be met or a donor is missing; the message says which and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One finished run, as far as budgets are concerned. Auxiliary calls are included."""

    arm: str
    instance_id: str
    seed: int
    mean_prompt: float
    peak: float
    removed_tokens: float
    total_input: float
    capped: bool = False
    """Ended at a step, time or context limit, so its totals are censored."""

    def on(self, match_on: MatchOn) -> float:
        """Return what is matched."""
        return float(getattr(self, match_on))


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotPoint:
    """What a parameter value came to on the pilot instances."""

    value: float
    tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """The parameter for a budget, with what was asked beside what it gave on the pilot."""

    arm: ArmSpec
    parameter: str
    value: float
    requested_tokens: float
    achieved_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DonorBudget:
    """The budget of one run, from the donor's other seeds."""

    tokens: float
    seeds: tuple[int, ...]
    capped_seeds: tuple[int, ...]
    """Donors that ended at a limit: the budget is a lower bound then, and flagged."""


def tuned_parameter(arm: ArmSpec) -> str:
    """Return the parameter by which the arm meets a budget.

    Raises:
        BudgetError: the arm has none.
    """
    parameter = arm.policy.budget_parameter
    if parameter is None:
        raise BudgetError(
            f"arm {arm.name} has no parameter that sets its budget; arms that have one:"
            f" {', '.join(sorted(_tunable()))}"
        )
    return parameter


def _tunable() -> Iterator[str]:
    for kind, parameters in KINDS.items():
        if parameters.tuned is not None:
            yield f"{kind} (with {parameters.tuned_with})" if parameters.tuned_with else kind


def with_parameter(arm: ArmSpec, value: float) -> ArmSpec:
    """Return the arm with its tuned parameter set to `value`."""
    parameter = tuned_parameter(arm)
    old: Any = getattr(arm.policy, parameter)
    typed: Any = round(value) if isinstance(old, int) else float(value)
    changed: Any = replace(arm.policy, **{parameter: typed})
    return replace(arm, policy=changed)


def fitted(
    arm: ArmSpec, points: Sequence[PilotPoint], *, budget: float, tolerance: float | None = 0.1
) -> Fitted:
    """Return the arm with the pilot's value that came nearest to `budget`.

    Args:
        arm: whose parameter is set.
        points: what the pilot measured.
        budget: tokens asked for.
        tolerance: how far off the nearest value may be, as a share; None takes it however far.

    Raises:
        BudgetError: no pilot, or none of its values came within `tolerance` of the budget.
    """
    parameter = tuned_parameter(arm)
    if not points:
        raise BudgetError(
            f"arm {arm.name} asks for {budget:,.0f} tokens but there is no pilot: run or replay"
            f" several values of {parameter} on instances outside the evaluation set"
        )
    best = min(points, key=lambda p: (abs(p.tokens - budget), p.value))
    if tolerance is not None and abs(best.tokens - budget) > tolerance * budget:
        low, high = min(p.tokens for p in points), max(p.tokens for p in points)
        raise BudgetError(
            f"arm {arm.name} cannot meet {budget:,.0f} tokens within {tolerance:.0%}: {parameter}"
            f" from {min(p.value for p in points):g} to {max(p.value for p in points):g} gave"
            f" {low:,.0f} to {high:,.0f} on the pilot, {best.tokens:,.0f} at {best.value:g} being"
            " the nearest; ask for another budget or pilot more values"
        )
    return Fitted(
        arm=with_parameter(arm, best.value),
        parameter=parameter,
        value=best.value,
        requested_tokens=budget,
        achieved_tokens=best.tokens,
    )


def budgeted(arm: ArmSpec, donors_tokens: float | None = None) -> Fitted | None:
    """Return the arm as its budget makes it; None where it has no budget.

    Args:
        arm: any arm.
        donors_tokens: `donor_budget` of this run, for a matched arm. Its budget is one instance's
            and may lie beyond what the pilot reached; the nearest value is taken then.

    Raises:
        BudgetError: the budget cannot be met, or a matched arm has no donors' budget.
    """
    points = [PilotPoint(value=value, tokens=tokens) for value, tokens in arm.pilot]
    if arm.matched_to is not None:
        if donors_tokens is None:
            raise BudgetError(
                f"arm {arm.name} is matched to {arm.matched_to}, whose runs set its budget;"
                " none were handed over"
            )
        return fitted(arm, points, budget=donors_tokens, tolerance=None)
    return None if arm.budget is None else fitted(arm, points, budget=arm.budget)


def donor_budget(
    arm: ArmSpec, runs: Iterable[Measured], *, instance_id: str, seed: int
) -> DonorBudget:
    """Return the budget of one run of a matched arm.

    Raises:
        BudgetError: the arm is not matched, or the donor has no other seed on this instance.
    """
    if arm.matched_to is None:
        raise BudgetError(f"arm {arm.name} is matched to no other arm")
    own = [r for r in runs if r.arm == arm.matched_to and r.instance_id == instance_id]
    donors = [run for run in own if run.seed != seed]
    if not donors:
        raise BudgetError(_missing(arm, instance_id, seed, [r.seed for r in own]))
    return DonorBudget(
        tokens=sum(run.on(arm.match_on) for run in donors) / len(donors),
        seeds=tuple(sorted(run.seed for run in donors)),
        capped_seeds=tuple(sorted(run.seed for run in donors if run.capped)),
    )


def _missing(arm: ArmSpec, instance_id: str, seed: int, have: Sequence[int]) -> str:
    found = f"only of seed {seed} itself" if have else "none"
    return (
        f"{arm.name} on {instance_id}, seed {seed}, needs a finished run of {arm.matched_to} with"
        f" another seed; there is {found}: give {arm.matched_to} two seeds or more and let it"
        " finish first"
    )
