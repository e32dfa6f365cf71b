"""The chat template of the simulation: messages and tools -> token ids.

    <start>system  TEXT  [tools as JSON] <end>
    <start>user    TEXT <end>
    <start>assistant [<think> REASONING </think>] TEXT [<call> NAME ARGUMENTS </call>]... <end>
    <start>tool    TEXT <end>
    <start>assistant

Each part is tokenized by itself, every message by itself, and reasoning is kept in old turns, so
that an unchanged history is an exact token prefix of the next prompt. Ids of tool calls are not
rendered: they carry nothing.
"""

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.serving.tokens import SIM_VOCABULARY, SimTokens

START, END, THINK, THINK_END, CALL, CALL_END, SEPARATOR = (SIM_VOCABULARY + i for i in range(7))
_ROLES = {
    role: SIM_VOCABULARY + 10 + i
    for i, role in enumerate(("system", "user", "assistant", "tool", "developer"))
}

MEMORY_TOKENS = 4_000_000
"""Ids of texts that are kept at most."""

_ENTRY_TOKENS = 75
"""What keeping one text costs beside its ids, in ids of 4 bytes."""


class PromptEncoder:
    """Renders chats to token ids, remembering the texts it has met.

    A run sends its whole history with every call; without the memory each call would cost the
    tokenization of everything so far.
    """

    def __init__(self) -> None:
        self._tokens = SimTokens()
        self._memory: OrderedDict[tuple[int, int], array[int]] = OrderedDict()
        self._held_tokens = 0

    def text_ids(self, text: str) -> "array[int]":
        """Return the ids of a bare text."""
        key = (hash(text), len(text))
        ids = self._memory.get(key)
        if ids is not None:
            self._memory.move_to_end(key)
            return ids
        ids = array("I", self._tokens.ids(text))
        self._memory[key] = ids
        self._held_tokens += len(ids) + _ENTRY_TOKENS
        while self._held_tokens > MEMORY_TOKENS and len(self._memory) > 1:
            _, old = self._memory.popitem(last=False)
            self._held_tokens -= len(old) + _ENTRY_TOKENS
        return ids

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: str) -> "array[int]":
        """Return the ids of a whole prompt, up to where the answer begins.

        Args:
            tools: the tool list as JSON text; empty for none. It stands in the first message.
        """
        ids = array("I")
        for i, message in enumerate(messages):
            role = str(message.get("role", "user"))
            ids.extend((START, _ROLES.get(role, _ROLES["user"])))
            if role == "assistant":
                ids.extend(self.answer_ids(message))
                continue
            ids.extend(self.text_ids(text_of(message.get("content"))))
            if i == 0 and tools:
                ids.append(SEPARATOR)
                ids.extend(self.text_ids(tools))
            ids.append(END)
        ids.extend((START, _ROLES["assistant"]))
        return ids

    def answer_ids(self, message: Mapping[str, Any]) -> "array[int]":
        """Return the ids of what an assistant message says, its end included."""
        ids = array("I")
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if reasoning:
            ids.append(THINK)
            ids.extend(self.text_ids(str(reasoning)))
            ids.append(THINK_END)
        ids.extend(self.text_ids(text_of(message.get("content"))))
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            ids.append(CALL)
            ids.extend(self.text_ids(str(function.get("name", ""))))
            ids.append(SEPARATOR)
            ids.extend(self.text_ids(str(function.get("arguments", ""))))
            ids.append(CALL_END)
        ids.append(END)
        return ids


def text_of(content: object) -> str:
    """Return a message's content as text, whether it is a string, text parts or missing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
