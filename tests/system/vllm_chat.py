"""Conversations with a real vLLM: two tools, and a history that is edited while it grows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.accounting.cache_cost import CacheAccount, Piece
from pipeline.protocols import ChatReply, ChatRequest
from pipeline.serving.client import HttpCompleter

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
PRUNE = {
    "type": "function",
    "function": {
        "name": "prune_observations",
        "description": "Remove outputs.",
        "parameters": {
            "type": "object",
            "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
            "required": ["ids"],
        },
    },
}


def request(messages: Sequence[Mapping[str, Any]], salt: str = "s", **changes: Any) -> ChatRequest:
    fields = {
        "messages": [json.dumps(message).encode() for message in messages],
        "tools": json.dumps([BASH, PRUNE]).encode(),
        "seed": 1,
        "max_tokens": 100,
        "cache_salt": salt,
    }
    return ChatRequest(**(fields | changes))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Run:
    """A history that grows, is edited in its middle, and is accounted for as the worker does."""

    def __init__(self, completer: HttpCompleter, name: str, block: int) -> None:
        self._completer, self._name = completer, name
        self._account = CacheAccount(_Lengths(), block_tokens=block)
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You repair programs. " * 8},
            user("Here is the issue. " * 20),
        ]
        self.expected: list[int | None] = []
        self.reported: list[int | None] = []

    def go(self, n_steps: int) -> "Run":
        for step in range(n_steps):
            reply = self._completer.complete(request(self._messages, self._name, seed=step))
            self._note(reply)
            (call,) = reply.tool_calls
            self._messages.append(
                {
                    "role": "assistant",
                    "content": reply.content,
                    "tool_calls": [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {"name": call.name, "arguments": call.arguments},
                        }
                    ],
                }
            )
            output = f"line {step} of the output\n" * (30 + 7 * step)
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
            if step % 3 == 2:
                # As an arm does it: an old output gives way to a placeholder.
                self._messages[3]["content"] = f"(removed at step {step})"
        return self

    def _note(self, reply: ChatReply) -> None:
        assert reply.prompt_token_ids is not None
        cost = self._account.charge(
            [Piece(text=json.dumps(self._messages), n_tokens=reply.prompt_tokens)],
            prompt_tokens=reply.prompt_tokens,
            prompt_ids=reply.prompt_token_ids,
            completion_ids=reply.completion_token_ids or (),
        )
        self.expected.append(cost.lcp_block_tokens)
        self.reported.append(reply.cached_tokens)


class _Lengths:
    name = "lengths"

    def count(self, text: str) -> int:
        return len(text)
