"""Short forms of what most tests of one arm need."""

from collections.abc import Iterable
from typing import Any

from pipeline.arms.parameters import PolicyContext
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.trajectory import view_messages
from tests.context.counters import WordCounter
from tests.context.scripts import Answers, Ran, Round, no_answer, run


def context(**fields: Any) -> PolicyContext:
    """Return what a policy is told of its run, tokens counted as words."""
    return PolicyContext(
        **{"seed": 0, "counter": WordCounter(), "context_length": 30_000, **fields}
    )


def ran(
    spec: ArmSpec,
    script: Iterable[Round],
    answer: Answers = no_answer,
    *,
    seed: int = 0,
    text_mode: bool = False,
    context_length: int = 30_000,
) -> Ran:
    """Return the run of an arm's policy over a script, tokens counted as words."""
    policy = policy_for(
        spec,
        seed=seed,
        count_tokens=WordCounter(),
        context_length=context_length,
        text_mode=text_mode,
    )
    return run(policy, script, answer, text_mode=text_mode)


def shown(run_: Ran) -> list[str]:
    """Return the contents of the final view's messages."""
    return [m["content"] for m in view_messages(run_.trajectory, run_.standing)]


def removed_commands(run_: Ran, reason: str) -> list[str | None]:
    """Return the commands whose outputs an edit with this reason took away, oldest first."""
    return [
        run_.trajectory.messages[e.message_index].command
        for e in sorted(run_.edits(reason), key=lambda e: e.message_index)
    ]
