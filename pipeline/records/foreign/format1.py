"""mini 1.x trajectories (format `mini-swe-agent-1`) as the messages that mini 2.x writes.

Format 1 pairs no output with its command: the one fenced block of a reply is the action, and the
user message after it is its output. A reply with no block or several was a format error, and the
message after it says so. What stands after the last reply (the submission, a limit) was never shown
to the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FORMAT = "mini-swe-agent-1"

_BLOCK = re.compile(r"```(?:bash|sh|mswea_bash_command)\n(.*?)\n```", re.DOTALL)
_RETURNCODE = re.compile(r"<returncode>(-?\d+)</returncode>")


def current_form(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages with the actions and results that format 1 leaves to the reader."""
    replies = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    last = replies[-1] if replies else len(messages)
    action: str | None = None
    for position, message in enumerate(messages):
        extra = message.get("extra")
        known = dict(extra) if isinstance(extra, Mapping) else {}
        text = str(message.get("content"))
        if message.get("role") == "assistant":
            blocks = _BLOCK.findall(text)
            action = blocks[0] if len(blocks) == 1 else None
            yield {**message, "extra": {**known, "actions": [{"command": a} for a in blocks[:1]]}}
        elif position > last:
            yield {"role": "exit", "content": text, "extra": known}
        elif action is not None:
            code = _RETURNCODE.search(text)
            yield {**message, "extra": {**known, "returncode": code and int(code[1])}}
            action = None
        else:
            yield message
