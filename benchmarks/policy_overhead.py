"""What a policy costs the client: milliseconds a call at 200 turns, for every arm.

    python benchmarks/policy_overhead.py [--turns 200]

One trajectory with outputs of a few kilobytes, a plan step every eight turns, and now and then a
repeated or failed command. The policy is driven from the first turn on, as in a run; the time is
the processor time of `decide` alone, model calls answered at once, over the last fifth of calls.
Target: under 1 ms at 200 turns.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import yaml

from pipeline.serving.tokens import token_counter
from pipeline.spec.arm import ArmSpec
from pipeline.spec.deletion_grid import deletion_grid
from pipeline.spec.parse import parsed
from pipeline.spec.policies import policy_for
from pipeline.views.policy import AuxReply, AuxRequest, CallKind, RequestedToolCall
from pipeline.views.trajectory import Message, PlanEvent, ToolCall, Trajectory
from pipeline.views.walk import PlainView, Walk

CONF = Path(__file__).resolve().parents[1] / "conf" / "arm"
COUNTER = token_counter("chars/3.6")
STEP_TURNS = 8


def arms() -> dict[str, ArmSpec]:
    named = {
        path.stem: parsed(ArmSpec, yaml.safe_load(path.read_text()))
        for path in sorted(CONF.glob("*.yaml"))
    }
    grid = {arm.name: arm for arm in deletion_grid()}
    few = ("delete_both_turn50_delayed", "delete_both_token75_immediate")
    return named | {name: grid[name] for name in few}


def output(turn: int) -> str:
    return "\n".join(f"{k}: value_{turn}_{k} = compute({turn}, {k})" for k in range(60 + turn % 40))


def message(trajectory: Trajectory, step: int, **fields: object) -> Message:
    draft = Message(index=len(trajectory.messages), step_index=step, **fields)
    count = COUNTER.count
    calls = sum(count(c.name) + count(c.arguments) for c in draft.tool_calls)
    return Message(
        index=draft.index,
        step_index=step,
        n_tokens=count(draft.content) + calls,
        reasoning_tokens=count(draft.reasoning or ""),
        n_lines=draft.content.count("\n") + 1,
        **fields,
    )


def append_turn(trajectory: Trajectory, turn: int) -> None:
    plan = turn % STEP_TURNS == 0
    command = f"sed -n {turn},{turn + 80}p src/module_{turn % 30}.py"
    name = "planctl" if plan else "bash"
    call = ToolCall(id=f"c{turn}", name=name, arguments=json.dumps({"command": command}))
    thought = f"I look at module_{turn % 30} and then at the tests of it. " * 4
    trajectory.append(
        [
            message(
                trajectory,
                turn,
                role="assistant",
                content="",
                reasoning=thought,
                tool_calls=(call,),
            )
        ]
    )
    trajectory.append(
        [
            message(
                trajectory,
                turn,
                role="tool",
                content="plan" if plan else output(turn),
                tool=name,
                tool_call_id=call.id,
                command=command,
                returncode=int(turn % 11 == 0),
            )
        ]
    )
    if plan:
        done = turn // STEP_TURNS
        events = [("complete", done), ("start", done + 1)] if done else []
        events = [("set", k) for k in range(60)] + [("start", 1)] if turn == STEP_TURNS else events
        trajectory.plan_events += [
            PlanEvent(
                message_index=len(trajectory.messages) - 1,
                step_index=turn,
                action=action,
                plan_step=step,
                title="",
                status="",
            )
            for action, step in events
        ]


def decide_ms(arm: ArmSpec, turns: int) -> list[float]:
    policy = policy_for(arm, seed=1, count_tokens=COUNTER, context_length=131_072)
    view = PlainView()
    trajectory = view.trajectory
    for role in ("system", "user"):
        trajectory.append([message(trajectory, 0, role=role, content="text " * 200)])

    def answer(request: AuxRequest) -> AuxReply:
        ids = [k for k in range(len(trajectory.turns)) if k % 2]
        call = RequestedToolCall(
            id="a", name="prune_observations", arguments=json.dumps({"ids": ids})
        )
        calls = (call,) if request.kind is CallKind.CLEANUP else ()
        return AuxReply(kind=request.kind, content="notes", tool_calls=calls, completion_tokens=90)

    walk = Walk(policy, view, answer)
    spent = []
    for turn in range(1, turns + 1):
        append_turn(trajectory, turn)
        start = time.thread_time()
        walk.step()
        spent.append((time.thread_time() - start) * 1000)
    return spent[-max(1, turns // 5) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    turns = parser.parse_args().turns
    print(f"{'arm':34}{'mean ms':>10}{'median ms':>11}{'max ms':>9}   at {turns} turns")
    worst = 0.0
    for name, arm in arms().items():
        spent = decide_ms(arm, turns)
        mean = statistics.mean(spent)
        worst = max(worst, mean)
        print(f"{name:34}{mean:10.3f}{statistics.median(spent):11.3f}{max(spent):9.3f}")
    print(f"worst mean {worst:.3f} ms a call (target: under 1 ms)")


if __name__ == "__main__":
    main()
