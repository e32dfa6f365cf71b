"""Actions as fenced blocks in a reply's text, for models without tool calls.

Owns mini-SWE-agent's text mode: the fence, and the lines in a block that are uses of other tools.
"""

import re
from collections.abc import Collection, Sequence

from pipeline.agent.bash_tool import BASH, HALF_CHARACTER
from pipeline.agent.tool import Action, BadReplyError
from pipeline.protocols import ChatReply

FENCE = "mswea_bash_command"
"""The info string of a fenced block that is an action, as in mini-SWE-agent's text mode."""

_BLOCK = re.compile(rf"```{FENCE}[ \t]*\n(.*?)\n?```", re.DOTALL)


def actions_from_text(reply: ChatReply, tools: Collection[str], *, several: bool) -> list[Action]:
    """Return the actions of a reply's fenced blocks, in order.

    Lines at either end of a block that begin with the name of another tool (`planctl`) are
    actions of their own; what is between them is one shell command.

    Raises:
        BadReplyError: no block, more than one where only one is allowed, or a reply with half a
            character.
    """
    if reply.lone_surrogates:
        raise BadReplyError(HALF_CHARACTER, reply.finish_reason)
    blocks = _BLOCK.findall(reply.content)
    if not blocks:
        raise BadReplyError(f"The reply holds no ```{FENCE} block.", reply.finish_reason)
    if len(blocks) > 1 and not several:
        raise BadReplyError(
            f"The reply holds {len(blocks)} ```{FENCE} blocks; give exactly one.",
            reply.finish_reason,
        )
    line_tools = [tool for tool in tools if tool != BASH]
    actions = [action for block in blocks for action in _block_actions(block, line_tools)]
    if not actions:
        raise BadReplyError("The block is empty.", reply.finish_reason)
    return actions


def _block_actions(block: str, line_tools: Sequence[str]) -> list[Action]:
    lines = block.strip().splitlines()
    before: list[Action] = []
    after: list[Action] = []
    while lines and (tool := _line_tool(lines[0], line_tools)):
        before.append(Action(tool=tool, command=lines.pop(0).strip()))
    while lines and (tool := _line_tool(lines[-1], line_tools)):
        after.insert(0, Action(tool=tool, command=lines.pop().strip()))
    command = "\n".join(lines).strip()
    return [*before, *([Action(tool=BASH, command=command)] if command else []), *after]


def _line_tool(line: str, line_tools: Sequence[str]) -> str | None:
    words = line.split(maxsplit=1)
    return words[0] if words and words[0] in line_tools else None
