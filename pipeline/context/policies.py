"""The door of this room: the policy an arm asks for.

One `match` over the parameters; how each policy decides is in the module of its name.
"""

from pipeline.context.agent_diet import AgentDietPolicy
from pipeline.context.budget import budgeted
from pipeline.context.context_edit import ClearThinkingPolicy, ContextEditPolicy
from pipeline.context.deletion import DeletionPolicy
from pipeline.context.discard_anytime import DiscardAnytimePolicy
from pipeline.context.full_history import FullHistoryPolicy
from pipeline.context.line_prune import SwePrunerProPolicy
from pipeline.context.line_pruners import LinePrunerPolicy
from pipeline.context.llm_summary import LlmSummaryPolicy
from pipeline.context.observation_mask import ObservationMaskPolicy
from pipeline.context.offload import OffloadPolicy
from pipeline.context.plan_prune import PlanPrunePolicy
from pipeline.context.plan_prune_cached import PlanPruneCachedPolicy
from pipeline.context.practice import DedupPolicy, PurgeErrorsPolicy, SupersedeWritesPolicy
from pipeline.context.reuse_prune import ReusePrunePolicy
from pipeline.context.self_prune import SelfPrunePolicy
from pipeline.protocols import Policy, TokenCounter
from pipeline.spec import policy as spec
from pipeline.spec.arm import ArmSpec
from pipeline.spec.line_pruner import LinePrunerSpec


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
    match arm.policy:
        case spec.PlanPrune() as p:
            return PlanPrunePolicy(
                p,
                placeholder=arm.placeholder,
                seed=seed,
                counter=count_tokens,
                text_mode=text_mode,
            )
        case spec.PlanPruneCached() as p:
            return PlanPruneCachedPolicy(
                p,
                placeholder=arm.placeholder,
                counter=count_tokens,
                context_length=context_length,
                text_mode=text_mode,
            )
        case spec.AgentDiet() as p:
            return AgentDietPolicy(p, seed=seed, placeholder=arm.placeholder, counter=count_tokens)
        case spec.Deletion() as p:
            return DeletionPolicy(p, seed=seed, placeholder=arm.placeholder)
        case spec.ContextEdit() as p:
            return ContextEditPolicy(p, placeholder=arm.placeholder, counter=count_tokens)
        case spec.ObservationMask() as p:
            return ObservationMaskPolicy(
                keep_last_turns=p.keep_last_turns,
                polling=p.polling,
                always_keep=p.always_keep,
                placeholder=arm.placeholder,
            )
        case spec.SwePrunerPro() as p:
            return SwePrunerProPolicy(p, placeholder=arm.placeholder)
        case spec.SelfPrune() as p:
            return SelfPrunePolicy(p, placeholder=arm.placeholder)
        case p if isinstance(p, LinePrunerSpec):
            return LinePrunerPolicy(p, placeholder=arm.placeholder)
        case _:
            return _plain_policy(arm)


def _plain_policy(arm: ArmSpec) -> Policy:
    """Return a policy that needs neither chance nor a token counter."""
    match arm.policy:
        case spec.FullHistory():
            return FullHistoryPolicy()
        case spec.LlmSummary() | spec.Hybrid() as p:
            return LlmSummaryPolicy(p, placeholder=arm.placeholder)
        case spec.ReusePrune() as p:
            return ReusePrunePolicy(p, placeholder=arm.placeholder)
        case spec.ClearThinking() as p:
            return ClearThinkingPolicy(p)
        case spec.Offload() as p:
            return OffloadPolicy(p)
        case spec.Dedup() as p:
            return DedupPolicy(p, placeholder=arm.placeholder)
        case spec.PurgeErrors() as p:
            return PurgeErrorsPolicy(p)
        case spec.SupersedeWrites() as p:
            return SupersedeWritesPolicy(p)
        case spec.DiscardAnytime() as p:
            return DiscardAnytimePolicy(p, placeholder=arm.placeholder)
        case _:
            raise TypeError(f"no policy for parameters of kind {arm.policy.kind}")
