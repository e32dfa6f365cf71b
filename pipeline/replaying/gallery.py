"""One six-turn run and each arm's view of it: the example of `docs/arms.md`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.focus import FOCUS_ARGUMENT
from pipeline.views.kept_lines import TokenLines, split_lines
from pipeline.views.line_scores import encoded, response_params, wanted_texts
from pipeline.views.policy import (
    AuxReply,
    AuxRequest,
    CallKind,
    RequestedToolCall,
    ServerQuestion,
    TokenCounter,
)
from pipeline.views.prune_tool import NAME
from pipeline.views.trajectory import Message, PlanEvent, ToolCall, Trajectory, view_messages
from pipeline.views.walk import PlainView, Walk

_SOURCE = "\n".join(f"def rule_{k}(text):\n    return text.strip()[{k}:]" for k in range(8))
_TESTS = "\n".join(
    ["F....F..", *[f"E   AssertionError: rule_{k} gave 'x', expected 'y'" for k in range(6)]]
)
_WRITE = "cat > rules.py <<'EOF'\n" + _SOURCE.replace("strip", "rstrip") + "\nEOF"

_TURNS: tuple[tuple[str, str, str, str, int], ...] = (
    ("planctl", '{"action": "set", "steps": ["find", "fix", "test"]}', "A plan first.",
     "1. [active] find\n2. fix\n3. test", 0),
    ("bash", "cat rules.py", "The rules are in rules.py.", _SOURCE, 0),
    ("bash", "python -m pytest tests/test_rules.py -q --tb=line", "Which rules fail?", _TESTS, 1),
    ("planctl", '{"action": "complete", "step": 1}', "strip takes too much.",
     "1. [done] find\n2. [active] fix\n3. test", 0),
    ("bash", _WRITE, "I rewrite the file.", "", 0),
    ("bash", "cat rules.py", "Is it right now?", _SOURCE.replace("strip", "rstrip"), 0),
)  # fmt: skip
"""Tool, command, reasoning, output and return code of each turn."""
_LAST_WAIT_S = 400.0
"""What the last command took: longer than the caches of providers hold a prefix."""

_EVENTS: Mapping[int, tuple[tuple[str, int], ...]] = {
    0: (("set", 0), ("set", 1), ("set", 2), ("set", 3), ("start", 1)),
    3: (("complete", 1), ("start", 2)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An arm's view of the example after its last turn."""

    lines: tuple[str, ...]
    asked: tuple[str, ...]
    """Kinds of the calls it made on the way."""


def example_view(arm: ArmSpec, counter: TokenCounter) -> Shown:
    """Return what `arm` shows of the example."""
    policy = policy_for(arm, seed=1, count_tokens=counter, context_length=8000)
    view = PlainView()
    asked: list[str] = []
    notes = any("note" in tool.properties for tool in arm.policy.tools)

    def answer(request: AuxRequest) -> AuxReply:
        if request.kind is not CallKind.LINES:
            asked.append(request.kind.value)
        return _answer(request, notes=notes)

    walk = Walk(policy, view, answer)
    for number in range(-1, len(_TURNS)):
        _append(view.trajectory, number, counter, arm)
        walk.step()
        question = walk.server_question()
        if question is not None:
            walk.keep_answer(question.kind, _server_answer(question), call_index=0)
    return Shown(
        lines=tuple(_line(m) for m in view_messages(view.trajectory, view.standing)),
        asked=tuple(asked),
    )


def _append(trajectory: Trajectory, number: int, counter: TokenCounter, arm: ArmSpec) -> None:
    if number < 0:
        for role, text in (("system", "You are a coding agent."), ("user", "Fix the rules.")):
            trajectory.append([_message(trajectory, counter, 0, role=role, content=text)])
        return
    tool, command, reasoning, output, returncode = _TURNS[number]
    if tool == "planctl" and not arm.plan:
        return
    step, call_id = number + 1, f"c{number + 1}"
    question = {FOCUS_ARGUMENT: reasoning} if arm.policy.asks_focus else {}
    arguments = json.dumps({"command": command} | question) if tool == "bash" else command
    calls = (ToolCall(id=call_id, name=tool, arguments=arguments),)
    assistant = {"content": "", "reasoning": reasoning, "tool_calls": calls}
    trajectory.append([_message(trajectory, counter, step, role="assistant", **assistant)])
    waited_s = _LAST_WAIT_S if step == len(_TURNS) else 1.0
    result = {
        **{"content": output, "tool": tool, "command": command, "returncode": returncode},
        "waited_s": waited_s,
    }
    trajectory.append(
        [_message(trajectory, counter, step, role="tool", tool_call_id=call_id, **result)]
    )
    trajectory.plan_events += [
        PlanEvent(
            message_index=len(trajectory.messages) - 1,
            step_index=step,
            action=action,
            plan_step=plan_step,
            title="",
            status="",
        )
        for action, plan_step in _EVENTS.get(number, ())
    ]


def _message(trajectory: Trajectory, counter: TokenCounter, step: int, **fields: Any) -> Message:
    message = Message(index=len(trajectory.messages), step_index=step, **fields)
    calls = sum(counter.count(c.name) + counter.count(c.arguments) for c in message.tool_calls)
    return replace(
        message,
        n_tokens=counter.count(message.content) + calls,
        reasoning_tokens=counter.count(message.reasoning or ""),
        n_lines=len(message.content.splitlines()),
    )


def _answer(request: AuxRequest, *, notes: bool) -> AuxReply:
    """Answer as a model might: the first two outputs are no longer needed."""
    if request.kind is CallKind.LINES:
        return AuxReply(kind=request.kind, content=_pruner_answer(request))
    if request.kind is CallKind.CLEANUP:
        note = {"note": "rules 0 and 5 fail"} if notes else {}
        arguments = json.dumps({"ids": [1, 2], **note})
        call = RequestedToolCall(id="a", name=NAME, arguments=arguments)
        return AuxReply(kind=request.kind, content="", tool_calls=(call,), completion_tokens=20)
    if request.kind is CallKind.SUMMARY:
        text = "COMPLETED: found the bug"
    elif "line numbers" in str((request.messages or ({},))[0].get("content")):
        text = "1-2"
    else:
        text = "8 rules, all strip()"
    return AuxReply(kind=request.kind, content=text, completion_tokens=20)


def _matters(line: str) -> bool:
    """Return whether a head or a line pruner finds a line worth keeping."""
    return re.search(r"rule_[05]\b", line) is not None


def _pruner_answer(request: AuxRequest) -> str:
    outputs = [
        {
            "message": output.message_index,
            "kept": [
                [n, n] for n, line in enumerate(split_lines(output.text), start=1) if _matters(line)
            ],
        }
        for output in request.outputs
    ]
    return json.dumps({"pruner": request.pruner, "outputs": outputs})


def _server_answer(question: ServerQuestion) -> str:
    """Answer as a head in the server might."""
    answers = []
    for text in wanted_texts(question.params):
        lines = split_lines(text)
        places = np.arange(len(lines))
        scores = [0.9 if _matters(line) else 0.1 for line in lines]
        token_lines = TokenLines(first=places, last=places, n_lines=len(lines))
        answers.append(encoded(scores, token_lines))
    answer = {"messages": list(question.messages), "answer": response_params(answers, 0)}
    return json.dumps(answer)


def _line(message: Mapping[str, Any]) -> str:
    parts = [f"{message['role']:9}"]
    if message.get("reasoning"):
        parts.append(f"({message['reasoning']})")
    if message["content"]:
        parts.append(_short(message["content"]))
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        shown = arguments.get("command") if function["name"] == "bash" else function["arguments"]
        parts.append(f"{function['name']}: {_short(shown or '{}')}")
    return " ".join(parts).rstrip()


def _short(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= 2:
        return " / ".join(lines)[:110]
    return f"{lines[0][:60]} … {lines[-1][:60]} ({len(lines)} lines)"
