"""The question that the agent may put beside a command: what it wants to know from the output."""

import json

from pipeline.views.trajectory import Message, Turn

FOCUS_ARGUMENT = "context_focus_question"
"""The optional argument of the bash tool in which the agent says what it wants to know."""


def focus_question(turn: Turn, message: Message) -> str | None:
    """Return the question that the agent put beside the command of `message`; None without one."""
    for call in turn.assistant.tool_calls:
        if call.id == message.tool_call_id:
            try:
                question = json.loads(call.arguments).get(FOCUS_ARGUMENT)
            except (ValueError, AttributeError, RecursionError):
                return None
            return (question.strip() or None) if isinstance(question, str) else None
    return None
