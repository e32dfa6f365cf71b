"""Mini's requests, byte for byte: a change of prompts, order, seeds or salts shows here.

`recorded_requests.json` holds the hash of every request body of a few conversations that meet each
branch of the agent. A change that is meant re-records it: `python -m
tests.agent.test_recorded_requests`; it changes results, so CHANGELOG.md says so.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.arms.plan_prune import PlanPrune
from pipeline.arms.swe_pruner import SwePruner
from pipeline.protocols import CommandResult
from pipeline.spec.arm import ArmSpec
from pipeline.views.focus import FOCUS_ARGUMENT
from tests.agent.rollouts import PRUNE, agent_spec, model_spec, rollout
from tests.fakes import Message, Reply, bash, call, planctl, says, submits

RECORDED = Path(__file__).with_name("recorded_requests.json")
LONG = "a line of output that is long enough to be worth removing\n" * 5
AS_USER = ArmSpec(name="cleanup_as_user", policy=PlanPrune(prompt_as="user_message"))
FOCUSED = ArmSpec(name="swe_pruner", policy=SwePruner(min_chars=100), plan=False)
SUBMIT_LINE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"


class FirstLine:
    """Keeps the first line of every output."""

    def prune(self, request) -> list[bool]:
        return [n == 0 for n in range(request.text.count("\n"))]


def plan_work() -> list[Reply]:
    """A plan of two steps with a cleanup between them, and calls that are refused on the way."""
    return [
        says("", planctl("set", steps=["a", "b"]), planctl("start", step=1)),
        says("", bash("cat one"), reasoning="First."),
        says("", planctl("start", step=9), call("prune_observations", ids=[1])),
        says("", bash("cat two"), bash("cat long")),
        says("", planctl("complete", outcome="read"), bash("false")),
        says("", call("prune_observations", ids=[1, 2])),
        says("", planctl("start", step=2), bash("sleep 99")),
        says("Done.", bash(SUBMIT_LINE), bash("ls")),
    ]


def plan_run(arm: ArmSpec) -> list[Message]:
    results: dict[str, CommandResult | str | Exception] = {
        "cat one": LONG,
        "cat two": LONG + "Ω\r\n",
        "cat long": "0123456789\n" * 2000,
        "false": CommandResult(output="", returncode=1),
        "sleep 99": CommandResult(output="half", returncode=-1, timed_out=True),
    }
    return rollout(plan_work(), arm=arm, results=results)[1]


def unusable_replies() -> list[Message]:
    script = [
        says("I will look around."),
        says("", call("editor", path="x")),
        says("", {"type": "function", "function": {"name": "bash", "arguments": "{"}}),
        says("", bash("ls"), finish_reason="length"),
        says("", finish_reason="length"),
        submits(),
    ]
    return rollout(script, agent=agent_spec(max_consecutive_format_errors=5))[1]


def text_mode() -> list[Message]:
    def block(*lines: str) -> str:
        return "```mswea_bash_command\n" + "\n".join(lines) + "\n```"

    answers = [
        "No block.",
        block("planctl set a | b", "planctl start 1", "ls"),
        block("one") + "\nand\n" + block("two"),
        block("prune_observations 1"),
        block(SUBMIT_LINE),
    ]
    return rollout(
        [says(text) for text in answers],
        arm=PRUNE,
        agent=agent_spec("mini_text"),
        model=model_spec(mode="text"),
    )[1]


def focused() -> list[Message]:
    asked = call("bash", command="cat f", **{FOCUS_ARGUMENT: "Where is it?"})
    script = [says("a", asked), says("b", bash("ls")), submits()]
    return rollout(script, arm=FOCUSED, results={"cat f": LONG}, pruner=FirstLine())[1]


CONVERSATIONS: Mapping[str, Callable[[], list[Message]]] = {
    "plan_prune": lambda: plan_run(PRUNE),
    "plan_prune_as_user": lambda: plan_run(AS_USER),
    "unusable_replies": unusable_replies,
    "text_mode": text_mode,
    "line_pruner": focused,
}


def hashes(requests: list[Message]) -> list[str]:
    """Return the hash of each body; parsed JSON keeps the order of keys."""
    return [hashlib.sha256(json.dumps(body).encode()).hexdigest() for body in requests]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_mini_sends_what_it_sent_when_the_conversation_was_recorded(name: str) -> None:
    assert hashes(CONVERSATIONS[name]()) == json.loads(RECORDED.read_text())[name]


if __name__ == "__main__":
    found = {name: hashes(talk()) for name, talk in CONVERSATIONS.items()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
