"""How the simulated agent words its answers: thinking, a sentence, and the actions.

The words carry no information for the agent itself, except the mark of `progress`. They exist so
that prompts have the shape and the weight of real ones.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

FENCE = "mswea_bash_command"


class Act(NamedTuple):
    """An action of an answer."""

    tool: str
    arguments: Mapping[str, Any]


def bash(command: str) -> Act:
    """Return the act of running `command`."""
    return Act("bash", {"command": command})


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer before it becomes a chat completion."""

    content: str
    reasoning: str | None = None
    acts: Sequence[Act] = ()


_OPENERS = (
    "Let me take stock before going on.",
    "So far the picture is this.",
    "What do I know, and what is still open?",
    "One thing at a time.",
    "The next move should be small.",
)
_MIDDLES = (
    "The issue describes a behaviour, so the cause is likely where it is computed, not above.",
    "I should not guess here: the exact text matters, since an edit has to match it.",
    "If the tests cover this path they will tell me quickly; if not, I need to read more.",
    "There may be a second place with the same assumption; better to see it before a change.",
    "The change has to stay minimal; other code depends on the present interface.",
    "I could run everything, but a narrow command gives an answer that is easier to read.",
    "What I saw earlier still holds unless the file has changed since.",
    "An empty input is the case that most often goes wrong in code of this shape.",
    "The naming suggests one thing while the condition says another; worth a closer look.",
    "It is cheap to look again and expensive to be wrong.",
)
_CLOSERS = (
    "That settles what to do now.",
    "After this I can decide how to go on.",
    "I will do just that and look at the result.",
    "If that shows nothing new, I move on.",
)


def thinking(rng: Random, about: str) -> str:
    """Return some sentences of thought that end in `about`."""
    middles = rng.sample(_MIDDLES, rng.randint(1, 5))
    return " ".join((rng.choice(_OPENERS), *middles, f"Now: {about}.", rng.choice(_CLOSERS)))


def as_block(act: Act) -> str:
    """Return an act as the fenced block of a text-mode answer."""
    if act.tool == "planctl":
        line = f"planctl {_plan_words(act.arguments)}"
    elif act.tool == "prune_observations":
        line = " ".join(("prune_observations", *map(str, act.arguments["ids"])))
    elif act.tool == "compress":
        line = " ".join(("compress", *(str(a).replace("\n", "; ") for a in act.arguments.values())))
    elif act.tool == "recall":
        line = f"recall {act.arguments['id']}"
    else:
        line = str(act.arguments["command"])
    return f"```{FENCE}\n{line}\n```"


def _plan_words(arguments: Mapping[str, Any]) -> str:
    verb = str(arguments["action"])
    if "steps" in arguments:
        return f"{verb} " + " | ".join(str(s).replace("|", "/") for s in arguments["steps"])
    rest = [str(arguments[key]) for key in ("step", "outcome", "title") if key in arguments]
    return " ".join((verb, *rest))


def as_tool_call(act: Act, call_id: str) -> dict[str, Any]:
    """Return an act as a tool call of a chat completion."""
    function = {"name": act.tool, "arguments": json.dumps(act.arguments)}
    return {"id": call_id, "type": "function", "function": function}
