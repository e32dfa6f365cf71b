"""What a policy asks about a view: which outputs are live, and how long they are as shown.

All answers come from the trajectory and the edits in force, so they are the same in a live run, in
replay and from the tables. No decisions are made here.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pipeline.shell.files import EDITORS
from pipeline.views.policy import TokenCounter
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn, shown_content

PLACEHOLDER = "[Earlier command output omitted.]"
"""What stands where an output was pruned, unless an arm or a sweep says otherwise."""

STANDING_REASONS = frozenset({"elide", "stamp", "nudge"})
"""Reasons of edits under which an output counts as shown; under any other it is removed."""


class ShownTokens:
    """Counts the tokens of messages as shown; each text is counted once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._by_text: dict[str, int] = {}

    def of_text(self, text: str) -> int:
        """Return the tokens of `text`."""
        known = self._by_text.get(text)
        if known is None:
            known = self._by_text[text] = self._counter.count(text) if text else 0
        return known

    def of_content(self, message: Message, edits: Edits) -> int:
        """Return the tokens of an output's content as shown."""
        edit = edits.get((message.index, Part.CONTENT))
        return message.n_tokens if edit is None else self.of_text(edit.text)

    def of_message(self, message: Message, edits: Edits) -> int:
        """Return the tokens of a message as shown, reasoning and tool calls included."""
        index = message.index
        if (index, Part.DROPPED) in edits:
            return 0
        content, calls = edits.get((index, Part.CONTENT)), edits.get((index, Part.TOOL_CALLS))
        if content is None and calls is None:
            total = message.n_tokens
        else:
            total = self.of_text(shown_content(message, edits))
            shown = (
                [(c.name, c.arguments) for c in message.tool_calls]
                if calls is None
                else _names_and_arguments(calls.text)
            )
            total += sum(self.of_text(name) + self.of_text(args) for name, args in shown)
        reasoning = edits.get((index, Part.REASONING))
        return total + (
            message.reasoning_tokens if reasoning is None else self.of_text(reasoning.text)
        )

    def of_chat(self, message: Mapping[str, Any]) -> int:
        """Return the tokens of a chat message: content, reasoning and tool calls."""
        calls = [call["function"] for call in message.get("tool_calls", ())]
        texts = [str(message["content"]), message.get("reasoning", "")]
        texts += [text for call in calls for text in (call["name"], call["arguments"])]
        return sum(map(self.of_text, texts))

    def of_view(self, trajectory: Trajectory, edits: Edits) -> int:
        """Return the tokens of the whole view, chat template aside."""
        inserted = sum(
            self.of_text(edit.text) for (_, part), edit in edits.items() if part is Part.INSERTED
        )
        return inserted + sum(self.of_message(m, edits) for m in trajectory.messages)


@lru_cache(maxsize=1024)
def _names_and_arguments(calls: str) -> list[tuple[str, str]]:
    return [(c["function"]["name"], c["function"]["arguments"]) for c in json.loads(calls)]


def acted_turns(trajectory: Trajectory) -> list[Turn]:
    """Return the turns that had results, oldest first; a format error is not a turn."""
    return [turn for turn in trajectory.turns if turn.observations]


def older_turns(trajectory: Trajectory, n_newest: int) -> list[Turn]:
    """Return all turns that had results but the newest `n_newest`, oldest first."""
    turns = acted_turns(trajectory)
    return turns[: max(0, len(turns) - n_newest)]


def older_outputs(trajectory: Trajectory, edits: Edits, n_newest: int) -> list[Message]:
    """Return the outputs of all but the newest turns that an arm may still remove."""
    return [
        message
        for turn in older_turns(trajectory, n_newest)
        for message in turn.observations
        if message.is_prunable and not is_removed(message, edits)
    ]


def newest_turn(trajectory: Trajectory) -> Turn | None:
    """Return the turn whose results just came, or None when the last answer had none."""
    if not trajectory.turns or not trajectory.turns[-1].observations:
        return None
    turn = trajectory.turns[-1]
    # After a format error the last turn is an old one, for which the policy was asked already.
    return turn if turn.observations[-1].index == trajectory.messages[-1].index else None


def idle_s(trajectory: Trajectory) -> float | None:
    """Return the seconds since the last answer; None where they were not measured."""
    since: list[float] = []
    for message in reversed(trajectory.messages):
        if message.role == "assistant":
            break
        if message.waited_s is not None:
            since.append(message.waited_s)
    return max(since, default=None)


def is_cold(trajectory: Trajectory, ttl_s: float | None) -> bool:
    """Return whether a cache that holds a prefix for `ttl_s` has lost it by now."""
    idle = idle_s(trajectory)
    return ttl_s is not None and idle is not None and idle > ttl_s


def arrived_outputs(
    trajectory: Trajectory, edits: Edits, min_chars: int
) -> list[tuple[Message, str]]:
    """Return the prunable outputs that just came and are not short, each with its text as shown."""
    turn = newest_turn(trajectory)
    outputs = [
        (message, shown_content(message, edits))
        for message in (turn.observations if turn is not None else ())
        if message.is_prunable and not is_removed(message, edits)
    ]
    return [(message, text) for message, text in outputs if len(text) >= max(1, min_chars)]


def output_ids(trajectory: Trajectory) -> dict[int, Message]:
    """Return the outputs an arm may prune by the id the model knows them by: 1, 2, 3, ...

    Ids count outputs in order of arrival, so they are short, stable, and the same in every view.
    """
    prunable = (m for m in trajectory.observations() if m.is_prunable)
    return dict(enumerate(prunable, start=1))


def is_removed(message: Message, edits: Edits) -> bool:
    """Return whether an edit already took this output out of the view."""
    edit = edits.get((message.index, Part.CONTENT))
    return (message.index, Part.DROPPED) in edits or (
        edit is not None and edit.reason not in STANDING_REASONS
    )


def live_outputs(
    trajectory: Trajectory, edits: Edits, *, protect_last_turns: int
) -> dict[int, Message]:
    """Return by id the outputs still in the view, except those of the newest turns."""
    turns = acted_turns(trajectory)
    protected = turns[len(turns) - protect_last_turns :] if protect_last_turns > 0 else []
    first_protected = protected[0].assistant.index if protected else len(trajectory.messages)
    return {
        number: message
        for number, message in output_ids(trajectory).items()
        if message.index < first_protected and not is_removed(message, edits)
    }


def placeholder_text(template: str | None, message: Message, number: int | None = None) -> str:
    """Return the text that replaces the output of `message`."""
    text = PLACEHOLDER if template is None else template
    if "{" not in text:
        return text
    lines = message.n_lines or (message.content.count("\n") + 1 if message.content else 0)
    return (
        text.replace("{lines}", str(lines))
        .replace("{tokens}", str(message.n_tokens))
        .replace("{id}", "?" if number is None else str(number))
    )


def content_edit(message: Message, text: str, reason: str) -> Edit:
    """Return the edit that shows `text` instead of the message's content."""
    return Edit(message_index=message.index, part=Part.CONTENT, text=text, reason=reason)


def reasoning_edit(message: Message, reason: str) -> Edit:
    """Return the edit that takes the message's reasoning away."""
    return Edit(message_index=message.index, part=Part.REASONING, text="", reason=reason)


def changed(edits: Iterable[Edit], standing: Edits) -> list[Edit]:
    """Return the edits that are not in force already, word for word."""
    return [
        edit
        for edit in edits
        if (old := standing.get((edit.message_index, edit.part))) is None or old.text != edit.text
    ]


def shortened(command: str | None, limit_chars: int) -> str:
    """Return the first line of a command, cut to `limit_chars`; an editor's long name goes."""
    lines = (command or "").strip().splitlines()
    first = lines[0].strip() if lines else ""
    for name in EDITORS:
        first = first.removeprefix(name)
    cut = len(lines) > 1 or len(first) > limit_chars
    return first[: limit_chars - 1] + "…" if cut else first
