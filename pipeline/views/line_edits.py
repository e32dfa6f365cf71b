"""How an output is shown when a line pruner keeps only some of its lines."""

from collections.abc import Iterator

from pipeline.views.kept_lines import FILTERED, BoolArray, kept_text
from pipeline.views.shown import content_edit
from pipeline.views.trajectory import Edit, Message

REASON = "line_prune"


def pruned_text(text: str, kept: BoolArray | None, *, marker: str | None) -> str:
    """Return an output with only its `kept` lines."""
    return text if kept is None else kept_text(text, kept, marker=marker or FILTERED)


def line_edit(
    message: Message,
    text: str,
    kept: BoolArray | None,
    *,
    marker: str | None,
    frame: tuple[str, str] = ("", ""),
) -> Iterator[Edit]:
    """Yield the edit that shows the kept lines of an output, if that is shorter.

    Args:
        message: The output's.
        text: What was judged.
        kept: Which of its lines stay.
        marker: Stands for removed lines.
        frame: What stands before and after `text` in the message.
    """
    shown = pruned_text(text, kept, marker=marker)
    # A marker longer than what it replaces saves nothing.
    if len(shown) < len(text):
        yield content_edit(message, shown.join(frame), REASON)
