"""The elision that every arm shares: a very long output is shown as its head and its tail.

mini-SWE-agent does this in its template, so that its history was never full. Here it is an edit
like any other, recorded and the same in all arms, made once when the output arrives. The text as
it arrived stays in the trajectory.
"""

from pipeline.views.trajectory import Edit, Message, Part

REASON = "elide"


def elide(message: Message, limit_chars: int) -> Edit | None:
    """Return the edit that shortens `message`, or None where it is short enough.

    Outputs of `limit_chars` characters and more keep half of that at either end, as in
    mini-SWE-agent's SWE-bench configuration (10,000). A limit of 0 never elides. Only command
    outputs are elided: plan results are never edited.
    """
    if limit_chars <= 0 or not message.is_prunable or len(message.content) < limit_chars:
        return None
    half = limit_chars // 2
    text = message.content
    notice = (
        f"\n[This output is too long to show: {len(text) - 2 * half} characters in the middle are"
        " left out. To see them, run a command that prints less, such as head, tail, sed -n or"
        " grep, or send the output to a file and search that.]\n"
    )
    return Edit(
        message_index=message.index,
        part=Part.CONTENT,
        text=text[:half] + notice + text[len(text) - half :],
        reason=REASON,
    )
