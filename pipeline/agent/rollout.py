"""One rollout: builds mini-SWE-agent over our parts, runs it, returns everything that happened.

Owns the wiring inside the agent's room and the meaning of mini's exit statuses. Does not know
where the server or the sandbox come from, which arm this is, or where records go.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from pipeline.agent.actions import bash_tool
from pipeline.agent.caller import RequestIdentity
from pipeline.agent.limit_diff import first_commit, limit_diff
from pipeline.agent.mini import prepare_import
from pipeline.agent.own_tools import ContextTool, OwnTools
from pipeline.agent.plan_tool import PLANCTL_TOOL
from pipeline.agent.printed_patch import PrintedPatch
from pipeline.agent.viewed_model import Elide, ViewedModel
from pipeline.protocols import (
    WHOLE_LIMIT_BYTES,
    Completer,
    LinePruner,
    Policy,
    Sandbox,
    TokenCounter,
)
from pipeline.records.failure import FailureClass, InfraError
from pipeline.records.run_record import CallRecord
from pipeline.records.trajectory import Decision, Message, PlanEvent
from pipeline.spec.agent import AgentSpec
from pipeline.spec.model import ModelSpec

if TYPE_CHECKING:
    from pipeline.agent.plan_agent import PlanAgent

AGENT_SIDE_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    TemplateError,
)
"""What the agent's own code may raise on what a model wrote; it ends the run as `agent_error`."""

ENDINGS: Mapping[str, FailureClass] = {
    "LimitsExceeded": FailureClass.LIMIT_STEPS,
    "StoppedOnLoop": FailureClass.LIMIT_STEPS,
    "TimeExceeded": FailureClass.LIMIT_TIME,
    "ContextWindowExceeded": FailureClass.LIMIT_CONTEXT,
    "RepeatedFormatError": FailureClass.LIMIT_FORMAT,
}
"""The failure class of every exit status without a submission."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """What came of a rollout; the fields are those of `RunRecord` that the agent knows."""

    exit_status: str
    failure_class: FailureClass
    failure: str | None
    patch: str
    limit_patch: str | None
    oversize_patch_bytes: int | None
    loop: bool
    template_dropped_tokens: int
    wall_s: float
    tool_s: float
    token_counter: str
    started_at: float
    finished_at: float
    messages: tuple[Message, ...]
    plan_events: tuple[PlanEvent, ...]
    decisions: tuple[Decision, ...]
    calls: tuple[CallRecord, ...]
    tools: Mapping[str, str]


def run_agent(
    *,
    row: Mapping[str, Any],
    agent: AgentSpec,
    model: ModelSpec,
    plan: bool,
    policy: Policy,
    completer: Completer,
    sandbox: Sandbox,
    counter: TokenCounter,
    elide: Elide,
    seed: int,
    run_id: str,
    attempt: int,
    now: Callable[[], float],
    should_stop: Callable[[], bool] = lambda: False,
    context_tools: Sequence[Mapping[str, Any]] = (),
    context_tool: ContextTool | None = None,
    shared_cache_salt: str | None = None,
    pruner: LinePruner | None = None,
    asks_focus: bool = False,
) -> RunOutcome:
    """Run the agent on one instance and return everything that happened.

    A run that breaks on our side, or is given up because `should_stop` said so, ends with an
    `infra_*` class and all that was recorded until then: what it cost was spent all the same.

    Args:
        row: the benchmark row; `instance_id` and `problem_statement` are read.
        agent: prompts and limits.
        model: how the model is asked.
        plan: whether the agent has `planctl`.
        policy: the arm's rule for what the model still sees.
        completer: the model server.
        sandbox: a started sandbox; it is not stopped here.
        counter: counts the tokens of single messages.
        elide: the shortening of long outputs that all arms share.
        seed: of the run; request seeds follow from it, never from the arm.
        run_id: with `attempt` it salts the server's prefix cache, so that a run's cached tokens
            are its own (METHODS 0).
        attempt: which try of the run this is, from 1.
        now: Unix time in seconds.
        should_stop: true when the worker must go; the run is then given up as infrastructure.
        context_tools: schemas of the tools that the arm adds to the list.
        context_tool: answers those tools in ordinary turns; None refuses them.
        shared_cache_salt: instead of the run's own salt, where arms are to share prefixes.
        pruner: judges the lines of outputs, for arms that ask one.
        asks_focus: whether the bash tool takes the question that the pruner needs.
    """
    prepare_import()
    from pipeline.agent.boxed_env import BoxedEnv
    from pipeline.agent.plan_agent import PlanAgent

    tools = [bash_tool(asks_focus=asks_focus), *([PLANCTL_TOOL] if plan else []), *context_tools]
    viewed = ViewedModel(
        agent=agent,
        model=model,
        policy=policy,
        completer=completer,
        counter=counter,
        elide=elide,
        tools=tools,
        identity=RequestIdentity(
            seed=seed,
            instance_id=str(row["instance_id"]),
            cache_salt=shared_cache_salt or f"{run_id}.{attempt}",
        ),
        upload=sandbox.upload,
        pruner=pruner,
        now=now,
    )
    started_at = now()
    env = BoxedEnv(sandbox, command_timeout_s=agent.command_timeout_s, now=now)
    mini_agent = PlanAgent(
        viewed,
        env,
        spec=agent,
        plan=plan,
        tools=OwnTools(context_tool),
        tool_names=[tool["function"]["name"] for tool in tools],
        now=now,
        should_stop=should_stop,
    )
    commit = first_commit(sandbox, timeout_s=agent.command_timeout_s)
    ending = _ending_of(mini_agent, str(row["problem_statement"]))
    viewed.absorb(mini_agent.messages)
    finished_at = now()
    left = PrintedPatch()
    if ending.failure_class in ENDINGS.values():
        left = limit_diff(sandbox, commit, timeout_s=agent.command_timeout_s)
    return RunOutcome(
        exit_status=ending.exit_status,
        failure_class=ending.failure_class,
        failure=ending.failure,
        patch=ending.patch,
        limit_patch=left.patch or None,
        oversize_patch_bytes=ending.oversize_patch_bytes or left.oversize_bytes,
        loop=mini_agent.loop,
        template_dropped_tokens=viewed.template_dropped_tokens(),
        wall_s=finished_at - started_at,
        tool_s=env.tool_s,
        token_counter=counter.name,
        started_at=started_at,
        finished_at=finished_at,
        messages=tuple(viewed.trajectory.messages),
        plan_events=tuple(viewed.trajectory.plan_events),
        decisions=tuple(viewed.trajectory.decisions),
        calls=tuple(viewed.calls),
        tools=viewed.tool_lists,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    exit_status: str
    failure_class: FailureClass
    failure: str | None = None
    patch: str = ""
    oversize_patch_bytes: int | None = None


def _ending_of(mini_agent: "PlanAgent", task: str) -> _Ending:
    try:
        info = mini_agent.run(task)
    except InfraError as error:
        return _Ending(
            exit_status=type(error).__name__,
            failure_class=error.failure_class,
            failure=traceback.format_exc(),
        )
    except AGENT_SIDE_ERRORS as error:
        return _Ending(
            exit_status=type(error).__name__,
            failure_class=FailureClass.AGENT_ERROR,
            failure=traceback.format_exc(),
        )
    status, patch = info["exit_status"], info["submission"]
    if status != "Submitted":
        detail = str(mini_agent.messages[-1]["content"])
        return _Ending(exit_status=status, failure_class=ENDINGS[status], failure=detail)
    size = info.get("oversize_patch_bytes")
    if size is not None:
        return _Ending(
            exit_status=status,
            failure_class=FailureClass.SUBMITTED_OVERSIZE,
            failure=f"the patch has {size:,} bytes; at most {WHOLE_LIMIT_BYTES:,} are kept",
            oversize_patch_bytes=size,
        )
    ended = FailureClass.OK if patch.strip() else FailureClass.SUBMITTED_EMPTY
    return _Ending(exit_status=status, failure_class=ended, patch=patch)
