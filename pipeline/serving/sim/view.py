"""The conversation as the simulated agent sees it: its actions and what is left of their outputs.

Everything comes from the request's messages. A placeholder, an empty output and a dropped
message are all the same to the agent: it does not see the text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.serving.sim.prompt import text_of

CLEANUP_OPENING = "Pause coding for this response"
"""Words of the cleanup prompt by which a cleanup turn is recognised.

See docs/methods.md, Plan-guided pruning.
"""

_FENCE = re.compile(r"```(?:mswea_bash_command|bash)\n(.*?)\n?```", re.DOTALL)
_OUTPUT = re.compile(r"<output>\n?(.*?)\n?</output>", re.DOTALL)
_HIDING = re.compile(
    r"\b(omitted|elided|removed|pruned|masked|deleted|cleared|hidden|compressed|filtered"
    r"|left out)\b",
    re.I,
)
NUDGE = "prune_observations with their numbers removes them"
"""Words of the reminder that outputs may be pruned in an ordinary turn.

See docs/methods.md, What people run.
"""

COMPRESS_NUDGE = "compress with the numbers of its first and last output"
"""Words of the reminder that a stretch of the history may be compressed."""

_STAMP = re.compile(r"\[output (\d+)\]\n")
_RECALL = re.compile(r"\brecall(?:\(id=| )(\d+)[)`]")
_LISTED = re.compile(r"^\s*(?:[-*]\s*)?(?:\[(\d+)\]|#(\d+)\b)(.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """Something the agent did, with as much of the output as is still shown."""

    tool: str
    command: str = ""
    """The shell command of a `bash` action."""
    arguments: Mapping[str, Any]
    output: str | None
    """None: not shown."""
    output_id: int | None = None
    """The number that stands on the output, where outputs are numbered as they arrive."""
    recall_id: int | None = None
    """The number under which a hidden output can be had again, where its placeholder says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An output offered for pruning in a cleanup prompt."""

    observation_id: int
    description: str


@dataclass(frozen=True, kw_only=True)
class View:
    """One request's messages, read."""

    opening: str
    """All text before the agent's first message: the system prompt and the task."""
    actions: tuple[Action, ...]
    texts: tuple[str, ...]
    """All text after the opening, oldest first."""
    n_turns: int
    """Assistant messages shown."""
    last: str
    """Text of the last message."""
    nudged: bool = False
    """The newest outputs come with a reminder that some may be pruned."""
    may_compress: bool = False
    """They come with a reminder that old ones may be compressed."""

    @property
    def is_cleanup(self) -> bool:
        """True where the harness asks what may be pruned."""
        return CLEANUP_OPENING in self.last

    @property
    def listed(self) -> tuple[Listed, ...]:
        """The outputs that the last message offers for pruning."""
        _, _, prompt = self.last.partition(CLEANUP_OPENING)
        return tuple(
            Listed(observation_id=int(m.group(1) or m.group(2)), description=m.group(3).strip())
            for m in _LISTED.finditer(prompt)
        )


def view_of(messages: Sequence[Mapping[str, Any]]) -> View:
    """Return the messages of a request as a view."""
    first = next((i for i, m in enumerate(messages) if m.get("role") == "assistant"), None)
    split = len(messages) if first is None else first
    # Where the beginning of the history was dropped or summarised, what follows the task is no
    # part of the opening.
    split = min(split, 1 + sum(1 for m in messages[:1] if m.get("role") == "system"))
    actions: list[Action] = []
    newest = split
    for i in range(split, len(messages)):
        if messages[i].get("role") == "assistant":
            actions.extend(_actions(messages, i))
            newest = i + 1
    new_texts = [text_of(m.get("content")) for m in messages[newest:]]
    return View(
        opening="\n".join(text_of(m.get("content")) for m in messages[:split]),
        actions=_with_recalled(actions),
        texts=tuple(text_of(m.get("content")) for m in messages[split:]),
        n_turns=sum(1 for m in messages if m.get("role") == "assistant"),
        last=text_of(messages[-1].get("content")) if messages else "",
        nudged=any(NUDGE in text for text in new_texts),
        may_compress=any(COMPRESS_NUDGE in text for text in new_texts),
    )


def _with_recalled(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions with recalled outputs at their old places.

    There they are as old as they are: an edit made since then counts.
    """
    asked = ((a.arguments.get("id"), a.output) for a in actions if a.tool == "recall")
    recalled = {number: output for number, output in asked if isinstance(number, int)}
    return tuple(
        replace(a, output=recalled[a.recall_id], recall_id=None) if a.recall_id in recalled else a
        for a in actions
    )


def _actions(messages: Sequence[Mapping[str, Any]], at: int) -> list[Action]:
    """Return the actions of the assistant message at `at`, with their outputs."""
    results: dict[str | None, str] = {}
    for message in messages[at + 1 :]:
        if message.get("role") == "assistant":
            break
        results.setdefault(message.get("tool_call_id"), text_of(message.get("content")))
    calls = messages[at].get("tool_calls")
    if calls:
        return [_called(call, results.get(call.get("id"))) for call in calls]
    block = _FENCE.search(text_of(messages[at].get("content")))
    if block is None:
        return []
    result = results.get(None)
    return [_numbered(written_action(block.group(1), shown_output(result)), result)]


def _called(call: Mapping[str, Any], result: str | None) -> Action:
    function = call.get("function", {})
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except json.JSONDecodeError:
        arguments = {}
    if not isinstance(arguments, dict):
        arguments = {}
    action = Action(
        tool=str(function.get("name", "")),
        command=str(arguments.get("command", "")),
        arguments=arguments,
        output=shown_output(result),
    )
    return _numbered(action, result)


def _numbered(action: Action, result: str | None) -> Action:
    """Return the action with the numbers that its result names."""
    if result is None or action.tool != "bash":
        return action
    stamp = _STAMP.match(result)
    offer = _RECALL.search(result) if action.output is None else None
    return replace(
        action,
        output_id=int(stamp[1]) if stamp else None,
        recall_id=int(offer[1]) if offer else None,
    )


def written_action(block: str, output: str | None = None) -> Action:
    """Return the action that a fenced block of a text-mode answer asks for."""
    word, _, rest = block.strip().partition(" ")
    if word == "planctl":
        verb, _, argument = rest.strip().partition(" ")
        arguments: dict[str, Any] = {"action": verb}
        if verb == "set":
            arguments["steps"] = [s.strip() for s in argument.split("|")]
        elif verb == "complete":
            arguments["outcome"] = argument
        elif argument[:1].isdigit():
            arguments["step"] = int(argument.split()[0])
        return Action(tool=word, arguments=arguments, output=output)
    if word == "prune_observations":
        ids = [int(i) for i in rest.split() if i.isdigit()]
        return Action(tool=word, arguments={"ids": ids}, output=output)
    if word == "compress":
        return Action(tool=word, arguments={}, output=output)
    if word == "recall" and rest.strip().isdigit():
        return Action(tool=word, arguments={"id": int(rest)}, output=output)
    return Action(tool="bash", command=block, arguments={"command": block}, output=output)


def shown_output(result: str | None) -> str | None:
    """Return the output inside a result message; None when it is hidden or empty."""
    if result is None:
        return None
    inside = _OUTPUT.search(result)
    body = result if inside is None else inside.group(1)
    if not body.strip():
        return None
    is_short = len(body) < 400 and body.count("\n") < 4
    if is_short and inside is None and _HIDING.search(body):
        return None
    return body


def hides_lines(output: str) -> bool:
    """Return whether some line of an output says that other lines were taken out."""
    return (
        any(
            line.lstrip()[:1] in "([<." and _HIDING.search(line) is not None
            for line in output.splitlines()
            if len(line) < 400 and line.strip()
        )
        or "characters elided" in output
    )
