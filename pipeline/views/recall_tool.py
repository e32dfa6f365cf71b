"""The tool `recall`: a pruned output is shown again, as a new result at the end of the view.

The old place keeps its placeholder, so no cached prefix breaks. A recall counts as a re-fetch of
its own kind. The agent runs it; this module only has the schema and the text of the answer.
"""

import json

from pipeline.views.offered_tool import Answered, OfferedTool
from pipeline.views.shown import is_removed, output_ids
from pipeline.views.trajectory import Edits, Trajectory

NAME = "recall"


def recall_tool() -> OfferedTool:
    """Return the tool of an arm that offers it."""
    return OfferedTool(
        name=NAME,
        description="Show an omitted command output again.",
        properties={
            "id": {"type": "integer", "description": "The id in the output's placeholder."}
        },
        required=("id",),
        answer=lambda trajectory, command: Answered(text=recalled_text(command, trajectory)),
    )


def recalled_text(
    command: str, trajectory: Trajectory, edits: Edits | None = None, *, limit_chars: int = 10_000
) -> str:
    """Return the result of a recall; an unusable call gets a text that says what is possible.

    Args:
        command: the call's JSON arguments, or the line `recall 3` in text mode.
        trajectory: the run so far.
        edits: all edits in force; None where they are not known, so that any output is shown.
        limit_chars: longer outputs are shown as head and tail, as on arrival.
    """
    number = _asked_id(command)
    outputs = output_ids(trajectory)
    if number is None or number not in outputs:
        gone = [str(k) for k, m in outputs.items() if edits is None or is_removed(m, edits)]
        return f"recall needs the id of an omitted output, one of: {', '.join(gone) or 'none'}"
    text = outputs[number].content
    if edits is not None and not is_removed(outputs[number], edits):
        return f"Output {number} is still shown above."
    if 0 < limit_chars <= len(text):
        half = limit_chars // 2
        left_out = len(text) - 2 * half
        return f"{text[:half]}\n[{left_out} characters left out]\n{text[len(text) - half :]}"
    return text


def _asked_id(command: str) -> int | None:
    text = command.strip().removeprefix(NAME).strip(" ()[]")
    if text.isascii() and text.isdigit():
        return int(text[:9])
    try:
        arguments = json.loads(command)
    except (ValueError, RecursionError):
        return None
    value = arguments.get("id") if isinstance(arguments, dict) else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else None
