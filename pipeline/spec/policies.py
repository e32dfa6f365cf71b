"""From an arm to its policy: the budget met, the rule built for one run."""

from pipeline.arms.parameters import PolicyContext
from pipeline.spec.arm import ArmSpec
from pipeline.spec.budget import budgeted
from pipeline.views.policy import Policy, TokenCounter


def policy_for(
    arm: ArmSpec,
    *,
    seed: int,
    count_tokens: TokenCounter,
    context_length: int,
    text_mode: bool = False,
    donors_tokens: float | None = None,
) -> Policy:
    """Return the policy of `arm`, its parameter fitted where it has a budget.

    Args:
        arm: the treatment.
        seed: of the run; the only source of chance in a policy.
        count_tokens: counts what the model is shown.
        context_length: the model's window, tokens.
        text_mode: the model makes no tool calls and answers in plain lines.
        donors_tokens: budget of this run, for an arm that is matched to another.

    Raises:
        BudgetError: the arm's budget cannot be met.
    """
    met = budgeted(arm, donors_tokens)
    arm = arm if met is None else met.arm
    context = PolicyContext(
        seed=seed,
        counter=count_tokens,
        context_length=context_length,
        placeholder=arm.placeholder,
        text_mode=text_mode,
    )
    return arm.policy.build(context)
