"""Runs the real agent against a scripted server over real HTTP, for the tests of this room."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from pipeline.agent.caller import RequestIdentity
from pipeline.agent.rollout import RunOutcome, run_agent
from pipeline.agent.session import ArmParts, ServedModel, Watch
from pipeline.arms.full_history import FullHistory
from pipeline.arms.plan_prune import PlanPrune
from pipeline.protocols import CommandResult, LinePruner
from pipeline.records.run_record import CallRecord
from pipeline.serving.client import HttpCompleter, RetryPolicy
from pipeline.spec.agent import AgentSpec
from pipeline.spec.arm import ArmSpec
from pipeline.spec.model import ModelSpec
from pipeline.spec.policies import policy_for
from pipeline.views.elide import elide
from pipeline.views.policy import Policy
from pipeline.views.trajectory import Trajectory, merged, view_messages
from tests.fakes import EchoSandbox, Message, Reply, ScriptedModel, WordCounter

CONF = Path(__file__).parents[2] / "conf" / "agent"
ROW = {"instance_id": "toy__pair-1", "problem_statement": "Sum is off by one."}

SALT = "run-1.1"

FULL = ArmSpec(name="full_history", policy=FullHistory())
PRUNE = ArmSpec(name="plan_prune", policy=PlanPrune())
SHAM = ArmSpec(name="sham_cleanup", policy=PlanPrune(apply=False))


def agent_spec(name: str = "mini", **changes: Any) -> AgentSpec:
    """Return the agent as configured in conf/agent, with fields changed."""
    return AgentSpec(**(yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes))


def model_spec(**changes: Any) -> ModelSpec:
    """Return a small model."""
    return ModelSpec(**({"name": "scripted", "kind": "endpoint", "repo": "none"} | changes))


def rollout(
    script: Iterable[Reply] | Callable[[Message], Reply],
    *,
    arm: ArmSpec = FULL,
    agent: AgentSpec | None = None,
    model: ModelSpec | None = None,
    results: dict[str, CommandResult | str | Exception] | None = None,
    patch: str = "diff --git a/x b/x\n",
    seed: int = 7,
    sandbox: EchoSandbox | None = None,
    row: Message = ROW,
    policy: Policy | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    pruner: LinePruner | None = None,
) -> tuple[RunOutcome, list[Message]]:
    """Return what came of a run, and the requests that the server received."""
    agent, model, counter = agent or agent_spec(), model or model_spec(), WordCounter()
    with ScriptedModel(script) as server:
        completer = HttpCompleter(
            model, server.base_url, retry=RetryPolicy(max_attempts=2, first_wait_s=0.0)
        )
        try:
            policy = policy or policy_for(
                arm,
                seed=seed,
                count_tokens=counter,
                context_length=model.context_length,
                text_mode=model.mode == "text",
            )
            identity = RequestIdentity(seed=seed, instance_id=ROW["instance_id"], cache_salt=SALT)
            outcome = run_agent(
                row,
                sandbox or EchoSandbox(results, patch=patch),
                agent=agent,
                model=ServedModel(
                    spec=model, completer=completer, counter=counter, identity=identity
                ),
                arm=ArmParts(
                    policy=policy,
                    plan=arm.plan,
                    instructions=arm.instructions,
                    tools=arm.policy.tools,
                    pruner=pruner,
                    asks_focus=arm.policy.asks_focus,
                ),
                elide=lambda message: elide(message, agent.elide_chars),
                watch=Watch(now=ticking(), should_stop=should_stop),
            )
        finally:
            completer.close()
        return outcome, server.requests


def ticking(step_s: float = 1.0) -> Callable[[], float]:
    """Return a clock that moves on by `step_s` at every look."""
    ticks = itertools.count(1_700_000_000)
    return lambda: next(ticks) * step_s


def rebuilt(outcome: RunOutcome) -> list[list[Message]]:
    """Return the messages of every call, from the record alone."""
    standing: dict[Any, Any] = {}
    sent = []
    for call in outcome.calls:
        standing = merged(standing, call.edits)
        sent.append(_messages_of(outcome, call, standing))
    return sent


def _messages_of(outcome: RunOutcome, call: CallRecord, standing: dict[Any, Any]) -> list[Message]:
    if call.messages is not None:
        return [dict(m) for m in call.messages]
    prefix = Trajectory()
    prefix.append(outcome.messages[: call.message_count])
    return view_messages(prefix, merged(standing, call.transient))


def tool_names(request: Message) -> list[str]:
    """Return the names of a request's tools."""
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def contents(request: Message) -> list[str]:
    """Return the contents of a request's messages."""
    return [message["content"] for message in request["messages"]]
