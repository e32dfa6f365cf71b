"""What a chat template does with earlier reasoning, and the text of a message as it renders it.

Servers render messages with the model's own template; offline we only need to know which parts of
the history change when a message is added. The rule is a field of the model's config. Exact texts
are the server's; here each message becomes one piece, and equal pieces mean equal renderings.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

TemplateRules = Literal["keep_reasoning", "drop_after_user", "no_reasoning"]

_TURN_END = "\x1e\n"
"""Ends a piece, so that no message's text is a prefix of another message's piece."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A message as the template would write it."""

    text: str
    """Without the reasoning that the template leaves out."""
    dropped_reasoning: bool
    """True where the template left reasoning out that the view had."""


def last_user_index(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the position of the last user message, -1 where there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "user"), -1)


def keeps_reasoning(rules: TemplateRules, position: int, last_user: int) -> bool:
    """Return whether the reasoning of the message at `position` is rendered.

    `drop_after_user` is Qwen3's rule: only turns after the last user message keep it. A tool
    result is not a user message.
    """
    if rules == "keep_reasoning":
        return True
    return rules == "drop_after_user" and position > last_user


def rendered(message: Mapping[str, Any], *, reasoning: bool) -> Rendered:
    """Return one chat message as text; equal texts mean equal tokens."""
    parts = [f"<{message['role']}>"]
    thought = message.get("reasoning")
    if thought and reasoning:
        parts.append(f"<think>{thought}</think>")
    content = message.get("content")
    if content:
        parts.append(content if isinstance(content, str) else json.dumps(content))
    parts += [
        f"<call {call['function']['name']}>{call['function']['arguments']}"
        for call in message.get("tool_calls") or ()
    ]
    return Rendered(
        text="\n".join(parts) + _TURN_END, dropped_reasoning=bool(thought) and not reasoning
    )


def rendered_prompt(messages: Sequence[Mapping[str, Any]], rules: TemplateRules) -> list[Rendered]:
    """Return every message of a prompt as the template would write it."""
    last_user = last_user_index(messages)
    return [
        rendered(message, reasoning=keeps_reasoning(rules, position, last_user))
        for position, message in enumerate(messages)
    ]
