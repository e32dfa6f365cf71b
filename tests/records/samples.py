"""Finished runs to write and read back, small or drawn by hypothesis."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.grade_record import GradeRecord
from pipeline.records.run_record import CallRecord, RunRecord, text_sha256
from pipeline.views.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    PlanEvent,
    ToolCall,
    Trajectory,
    merged,
    view_messages,
)

bounded = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How hypothesis is used here: a busy machine fails no test."""

TOOLS = '[{"type":"function","function":{"name":"bash"}}]'


def run_record(run_id: str = "toy-1-sim-full-s0-abc", **changes: Any) -> RunRecord:
    record = RunRecord(
        run_id=run_id,
        sweep="demo",
        benchmark="toy",
        instance_id=run_id.split("-s")[0],
        repo="toy/ledger",
        model="sim",
        agent="mini",
        arm="full_history",
        seed=0,
        block_id="block-1",
        attempt=1,
        exit_status="Submitted",
        failure_class=FailureClass.OK,
        patch="diff --git a/x b/x\n",
        token_counter="words",
        evidence="sim",
        started_at=100.0,
        finished_at=160.0,
        worker="w0",
        node="n0",
        commit="0" * 40,
        versions={"planprune": "0.1.0"},
    )
    return replace(record, **changes)


def full_run(run_id: str = "toy-1-sim-plan_prune-s0-abc", **changes: Any) -> RunRecord:
    """A run with a plan, an elision, a cleanup turn that pruned one output, and a summary."""
    bash = ToolCall(id="c1", name="bash", arguments='{"command": "cat a.py"}')
    plan = ToolCall(id="c2", name="planctl", arguments='{"op":"complete"}')
    messages = (
        Message(index=0, step_index=0, role="system", content="You are an agent.", n_tokens=4),
        Message(index=1, step_index=0, role="user", content="Fix the ledger.", n_tokens=3),
        Message(
            index=2,
            step_index=1,
            role="assistant",
            content="",
            reasoning="look first",
            tool_calls=(bash, plan),
            n_tokens=10,
            reasoning_tokens=2,
        ),
        Message(
            index=3,
            step_index=1,
            role="tool",
            content="line\n" * 100,
            output="line\n" * 98,
            output_start=5,
            tool_call_id="c1",
            tool="bash",
            command="cat a.py",
            returncode=0,
            n_tokens=200,
            n_lines=100,
        ),
        Message(
            index=4,
            step_index=1,
            role="tool",
            content="step 1 is completed",
            output="Step 1: DONE",
            tool_call_id="c2",
            tool="planctl",
            command='{"op":"complete"}',
            n_tokens=5,
            n_lines=1,
        ),
        Message(index=5, step_index=2, role="assistant", content="done", n_tokens=1),
    )
    elide = Edit(message_index=3, part=Part.CONTENT, text="line\n" * 50, reason="elide")
    ask = Edit(
        message_index=4, part=Part.CONTENT, text="step 1 is completed\nReview.", reason="ask"
    )
    prune = Edit(message_index=3, part=Part.CONTENT, text="[omitted]", reason="prune")
    sha = text_sha256(TOOLS)
    calls = (
        CallRecord(
            step_index=1,
            kind="step",
            message_count=2,
            prompt_tokens=100,
            cached_tokens=0,
            completion_tokens=12,
            reasoning_tokens=2,
            tools_sha256=sha,
            latency_s=0.5,
            finish_reason="tool_calls",
            request_seed=7,
            max_tokens=512,
            started_at=100.5,
        ),
        CallRecord(
            step_index=2,
            kind="cleanup",
            message_count=5,
            edits=(elide,),
            transient=(ask,),
            prompt_tokens=300,
            cached_tokens=96,
            completion_tokens=8,
            reasoning_tokens=0,
            tools_sha256=sha,
            tool_choice={"type": "function", "function": {"name": "prune_observations"}},
            latency_s=0.25,
            reply="",
            reply_tool_calls=(
                ToolCall(id="p1", name="prune_observations", arguments='{"ids":[3]}'),
            ),
        ),
        CallRecord(
            step_index=2,
            kind="summary",
            message_count=5,
            messages=({"role": "user", "content": "Summarise é."},),
            prompt_tokens=20,
            cached_tokens=0,
            completion_tokens=3,
            reasoning_tokens=0,
            latency_s=0.25,
            reply="short",
        ),
        CallRecord(
            step_index=2,
            kind="step",
            message_count=5,
            edits=(prune,),
            prompt_tokens=150,
            cached_tokens=96,
            completion_tokens=1,
            reasoning_tokens=0,
            tools_sha256=sha,
            latency_s=0.5,
        ),
    )
    changes = {
        "arm": "plan_prune",
        "messages": messages,
        "calls": calls,
        "tools": {sha: TOOLS},
        "plan_events": (
            PlanEvent(
                message_index=4,
                step_index=1,
                action="complete",
                plan_step=1,
                title="read",
                status="done",
                outcome="read it",
            ),
        ),
        "decisions": (
            Decision(
                kind="cleanup",
                message_index=5,
                call_index=1,
                content="",
                tool_calls=calls[1].reply_tool_calls,
                completion_tokens=8,
            ),
            Decision(
                kind="summary", message_index=5, call_index=2, content="short", completion_tokens=3
            ),
        ),
        **changes,
    }
    return run_record(run_id, **changes)


def grade_record(run: RunRecord, **changes: Any) -> GradeRecord:
    record = GradeRecord(
        run_id=run.run_id,
        instance_id=run.instance_id,
        attempt=1,
        grade_class=GradeClass.RESOLVED,
        resolved=True,
        patch_exists=True,
        patch_applied=True,
        f2p_passed=1,
        f2p_total=1,
        p2p_passed=3,
        p2p_total=3,
        harness_version="5.0.2",
        patch_sha256=run.patch_sha256,
        seconds=1.5,
        report="{}",
        finished_at=200.0,
        worker="g0",
        node="n1",
    )
    return replace(record, **changes)


def sent_messages(record: RunRecord) -> list[list[dict[str, Any]]]:
    """What a worker that follows the contract sends, call by call, computed apart from rebuild."""
    sent = []
    standing: dict[tuple[int, Part], Edit] = {}
    for call in record.calls:
        standing = merged(standing, call.edits)
        prefix = Trajectory()
        prefix.append(record.messages[: call.message_count])
        view = view_messages(prefix, merged(standing, call.transient))
        sent.append([dict(m) for m in call.messages] if call.messages is not None else view)
    return sent


text = st.text(max_size=40)


@st.composite
def drawn_runs(draw: st.DrawFn) -> RunRecord:
    """Runs of any shape whose messages and edits obey the trajectory's rules."""
    n_steps = draw(st.integers(0, 4))
    messages = [
        Message(index=0, step_index=0, role="system", content=draw(text)),
        Message(index=1, step_index=0, role="user", content=draw(text)),
    ]
    calls: list[CallRecord] = []
    for step in range(1, n_steps + 1):
        for _ in range(draw(st.integers(0, 1))):
            own = draw(st.none() | st.just(({"role": "user", "content": draw(text)},)))
            calls.append(_call(draw, len(messages), step, "cleanup", own))
        calls.append(_call(draw, len(messages), step, "step", None))
        count = draw(st.integers(0, 2))
        tool_calls = tuple(
            ToolCall(id=f"c{step}.{i}", name="bash", arguments=draw(text)) for i in range(count)
        )
        messages.append(
            Message(
                index=len(messages),
                step_index=step,
                role="assistant",
                content=draw(text),
                reasoning=draw(st.none() | text),
                tool_calls=tool_calls,
            )
        )
        for made in tool_calls:
            messages.append(
                Message(
                    index=len(messages),
                    step_index=step,
                    role="tool",
                    content=draw(text),
                    tool_call_id=made.id,
                    tool="bash",
                    command=draw(text),
                    returncode=draw(st.integers(-1, 255)),
                    n_tokens=draw(st.integers(0, 10**6)),
                )
            )
    return run_record(
        messages=tuple(messages),
        calls=tuple(calls),
        patch=draw(text),
        answer=draw(st.none() | text),
        failure_class=draw(st.sampled_from(FailureClass)),
        extra={"label": draw(text)},
    )


def _call(draw: st.DrawFn, count: int, step: int, kind: str, own: Any) -> CallRecord:
    edit = st.builds(
        Edit,
        message_index=st.integers(0, count),
        part=st.sampled_from([Part.CONTENT, Part.REASONING, Part.DROPPED, Part.INSERTED]),
        text=text,
        reason=st.sampled_from(["elide", "prune", "mask"]),
    )
    return CallRecord(
        step_index=step,
        kind=kind,
        message_count=count,
        edits=tuple(draw(st.lists(edit, max_size=3))),
        transient=tuple(draw(st.lists(edit, max_size=2))) if kind != "step" else (),
        messages=own,
        prompt_tokens=draw(st.none() | st.integers(1, 10**6)),
        cached_tokens=draw(st.none() | st.integers(0, 10**6)),
        completion_tokens=draw(st.integers(0, 10**4)),
        tool_choice=draw(st.none() | st.just("auto") | st.just({"type": "function"})),
    )
