"""One rollout: opens a session for a scaffold, runs it, returns everything that happened.

Owns the border at which what the agent's own code raises becomes an ending. Does not know where
the server or the sandbox come from, which arm or scaffold this is, or where records go.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from jinja2 import TemplateError

from pipeline.agent.ending import EndedError, Ending
from pipeline.agent.printed_patch import NO_PATCH
from pipeline.agent.run_diff import first_commit, run_diff
from pipeline.agent.scaffold import Scaffold, scaffold_for
from pipeline.agent.session import ArmParts, Elide, ServedModel, Session, Watch
from pipeline.agent.shared_prefix import SharedPrefix
from pipeline.protocols import Sandbox
from pipeline.records.failure import FailureClass, InfraError
from pipeline.records.run_record import CallRecord
from pipeline.spec.agent import AgentSpec
from pipeline.views.trajectory import Decision, Message, PlanEvent

WALL_LIMIT = "wall_limit_s"
"""The column of a row with a time limit of its own."""

AGENT_SIDE_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    TemplateError,
)
"""What the agent's own code may raise on what a model wrote; it ends the run as `agent_error`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """What came of a rollout; the fields are those of `RunRecord` that the agent knows."""

    exit_status: str
    failure_class: FailureClass
    failure: str | None
    patch: str
    answer: str | None
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
    row: Mapping[str, Any],
    sandbox: Sandbox,
    *,
    agent: AgentSpec,
    model: ServedModel,
    arm: ArmParts,
    elide: Elide,
    watch: Watch,
    prefix: SharedPrefix | None = None,
) -> RunOutcome:
    """Run the agent on one instance and return everything that happened.

    A run that breaks on our side, or is given up because its worker must go, ends with an
    `infra_*` class and all that was recorded until then: what it cost was spent all the same.

    Args:
        row: the benchmark row; `problem_statement` is read, and `wall_limit_s` where it has one:
            the shorter limit holds.
        sandbox: a started sandbox; it is not stopped here.
        agent: scaffold, prompts and limits.
        model: who answers.
        arm: the treatment.
        elide: the shortening of long outputs that all arms share.
        watch: clock and stop signal.
        prefix: the run that this one begins with.

    Raises:
        ForkDifferenceError: it cannot begin with that run.
    """
    agent = replace(agent, wall_limit_s=min(agent.wall_limit_s, row.get(WALL_LIMIT) or inf))
    scaffold = scaffold_for(agent)
    session = Session(
        agent=agent,
        model=model,
        arm=arm,
        tools=scaffold.tools(asks_focus=arm.asks_focus),
        elide=elide,
        upload=sandbox.upload,
        watch=watch,
        prefix=prefix,
    )
    commit = None
    if agent.submit != "answer":
        commit = first_commit(sandbox, timeout_s=agent.command_timeout_s)
    ending = _ending_of(scaffold, session, sandbox, str(row["problem_statement"]))
    finished_at = watch.now()
    left = NO_PATCH
    if ending.is_limit and commit is not None:
        left = run_diff(sandbox, commit, timeout_s=agent.command_timeout_s)
    return RunOutcome(
        exit_status=ending.exit_status,
        failure_class=ending.failure_class,
        failure=ending.failure,
        patch=ending.submission.patch,
        answer=ending.answer,
        limit_patch=left.patch or None,
        oversize_patch_bytes=ending.submission.oversize_bytes or left.oversize_bytes,
        loop=session.loop,
        template_dropped_tokens=session.template_dropped_tokens(),
        wall_s=finished_at - session.started_at,
        tool_s=session.tool_s,
        token_counter=model.counter.name,
        started_at=session.started_at,
        finished_at=finished_at,
        messages=tuple(session.trajectory.messages),
        plan_events=tuple(session.trajectory.plan_events),
        decisions=tuple(session.trajectory.decisions),
        calls=tuple(session.calls),
        tools=session.tool_lists,
    )


def _ending_of(scaffold: Scaffold, session: Session, sandbox: Sandbox, task: str) -> Ending:
    try:
        return scaffold.run(session, sandbox, task)
    except EndedError as end:
        return end.ending
    except InfraError as error:
        return _broken(error, error.failure_class)
    except AGENT_SIDE_ERRORS as error:
        return _broken(error, FailureClass.AGENT_ERROR)


def _broken(error: Exception, ended: FailureClass) -> Ending:
    why = "".join(traceback.format_exception(error))
    return Ending(exit_status=type(error).__name__, failure_class=ended, failure=why)
