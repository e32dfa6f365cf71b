"""The door of this room: the policy an arm asks for.

One `match` over the parameters; how each policy decides is in the module of its name.
"""

from pipeline.context.full_history import FullHistoryPolicy
from pipeline.context.plan_prune import PlanPrunePolicy
from pipeline.protocols import Policy, TokenCounter
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policy import FullHistory, PlanPrune


def policy_for(
    arm: ArmSpec,
    *,
    seed: int,
    count_tokens: TokenCounter,
    context_length: int,
    text_mode: bool = False,
) -> Policy:
    """Return the policy of `arm`.

    Args:
        arm: the treatment.
        seed: of the run; the only source of chance in a policy.
        count_tokens: counts what the model is shown.
        context_length: the model's window, tokens.
        text_mode: the model makes no tool calls and answers in plain lines.
    """
    match arm.policy:
        case FullHistory():
            return FullHistoryPolicy()
        case PlanPrune() as spec:
            return PlanPrunePolicy(
                spec,
                placeholder=arm.placeholder,
                seed=seed,
                counter=count_tokens,
                text_mode=text_mode,
            )
        case _:
            raise NotImplementedError(f"no policy yet for {arm.policy.kind}")
