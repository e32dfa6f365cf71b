"""Whether a server may be given runs: the sweep's own tools and fields, put to it once.

Owns what the conversation of `serving.server_check` is held with, and what its findings lead to: a
worker that stops before it has tried anything. `doctor --server` asks the same.
"""

import secrets
from collections.abc import Mapping

from pipeline.agent.plan_tool import PLANCTL_TOOL
from pipeline.agent.scaffold import scaffold_for
from pipeline.arms.cleanup_turn import CleanupTurn
from pipeline.host.log import say
from pipeline.serving.client import RetryPolicy, completer_for
from pipeline.serving.finding import Finding, Offered, ServerUnfitError, blocking_text
from pipeline.serving.server_check import server_findings
from pipeline.spec.model import ModelSpec
from pipeline.spec.sweep import SweepSpec
from pipeline.views.prune_tool import tool_choice
from pipeline.worker.servers import ModelServer

_RETRY = RetryPolicy(max_attempts=3, first_wait_s=1.0)


def findings_of(
    spec: SweepSpec, model: ModelSpec, server: ModelServer, env: Mapping[str, str]
) -> list[Finding]:
    """Return what a conversation with `server` finds, held as the runs of `spec` would hold it.

    Raises:
        ServerError: it does not answer.
        ValueError: the environment's proxy cannot be used.
    """
    return server_findings(
        lambda asked: completer_for(asked, server.base_url, env, retry=_RETRY),
        model,
        server.base_url,
        offered_by(spec, model),
        salt=f"check-{secrets.token_hex(8)}",
        proxy=server.proxy,
    )


def offered_by(spec: SweepSpec, model: ModelSpec) -> Offered:
    """Return the tools of all arms of a sweep, and the choice that a cleanup turn makes."""
    if model.mode == "text":
        return Offered()
    arms = list(spec.arms.values())
    asks_focus = any(arm.policy.asks_focus for arm in arms)
    of_scaffolds = [
        tool.schema
        for agent in spec.agents.values()
        for tool in scaffold_for(agent).tools(asks_focus=asks_focus)
    ]
    of_arms = [tool.schema for arm in arms for tool in arm.policy.tools]
    plan = [PLANCTL_TOOL] if any(arm.plan for arm in arms) else []
    schemas = {s["function"]["name"]: s for s in (*of_scaffolds, *plan, *of_arms)}
    choices = {arm.policy.tool_choice for arm in arms if isinstance(arm.policy, CleanupTurn)}
    mode = "named" if "named" in choices else min(choices, default=None)
    several = all(agent.parallel_tool_calls for agent in spec.agents.values())
    return Offered(
        tools=tuple(schemas.values()),
        tool_choice=None if mode is None else tool_choice(mode),
        extra={} if several else {"parallel_tool_calls": False},
    )


def require_fit(
    spec: SweepSpec, model: ModelSpec, server: ModelServer, env: Mapping[str, str]
) -> None:
    """Return once a conversation has shown that `server` can be given runs.

    What is odd and no obstacle is said. The simulated agent is ours, and asked nothing.

    Raises:
        ServerUnfitError: it cannot; the message names every key to change.
        ServerError: it does not answer.
    """
    if model.kind == "sim":
        return
    findings = findings_of(spec, model, server, env)
    for finding in findings:
        if finding.fix and not finding.blocks:
            say(f"{model.name}: {finding.what}: {finding.found} ({finding.fix})")
    problem = blocking_text(findings)
    if problem:
        named = f"model=endpoint model.served_name={model.request_name}"
        words = named if model.kind == "endpoint" else f"model={model.name}"
        raise ServerUnfitError(
            f"the server of {model.name} is not what the configuration says, so no run was "
            f"started: {problem}; look at it with: python -m pipeline.doctor --server "
            f"{server.base_url} {words}"
        )
