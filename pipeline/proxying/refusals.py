"""Which arms a proxy can apply, and why not the others.

A proxy sees requests. It adds no tools, since the client would not carry them out, it keeps no plan
and reaches no sandbox; an arm that needs one of these would act as another arm under its name.
"""

from collections.abc import Callable, Mapping

from pipeline.spec.arm import ArmSpec
from pipeline.views.policy import AsksServer, KeepsFiles, Policy

_NEEDS: Mapping[str, Callable[[ArmSpec, Policy], bool]] = {
    "it acts when a plan step ends, and only this project's agents keep a plan": (
        lambda arm, _: arm.policy.needs_plan
    ),
    "it gives the agent tools of its own, which a client would not carry out": (
        lambda arm, _: bool(arm.policy.tools)
    ),
    "the agent's shell must take a question beside the command": (
        lambda arm, _: arm.policy.asks_focus
    ),
    "it needs scores from inside a model server that this project started": (
        lambda arm, policy: arm.policy.needs_head or isinstance(policy, AsksServer)
    ),
    "it writes files into the agent's sandbox": lambda _, policy: isinstance(policy, KeepsFiles),
    "it adds a text to the system message, which is the client's": (
        lambda arm, _: bool(arm.instructions)
    ),
    "its budget comes from another arm's runs": lambda arm, _: arm.matched_to is not None,
}


def refusal(arm: ArmSpec, policy: Policy) -> str:
    """Return why a proxy cannot apply `arm`, whose rule is `policy`; empty where it can."""
    reasons = [reason for reason, holds in _NEEDS.items() if holds(arm, policy)]
    return "; ".join(reasons)
