"""A short conversation with a server, as a run would hold it: what it refuses, counts and forgets.

Sends the real body (tools, choice, salt, seed, length), then a history that doubles with every
request, then the same with an output left out. Nothing here knows who asks.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.protocols import ChatReply, ChatRequest
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.serving.client import HttpCompleter, RequestRefusedError
from pipeline.serving.finding import Finding, Offered
from pipeline.spec.model import ModelSpec

LONGEST_HISTORY_TOKENS = 10_000
"""Servers that drop old messages in silence do so beyond 2,048 to 8,192 tokens by default."""
WINDOW_SHARE = 0.6
"""Of the window, for the longest history: tokens are estimated at four bytes each."""
PATIENCE_S = 60.0
"""A server that has taken so long for its longer histories is asked for none that is longer."""
SHORT_ANSWER_TOKENS = 16
CALL_TOKENS = 256
"""Room for a tool call, reasoning before it included."""
MAX_CHANGES = 8
"""Fields of a body that are taken for foreign to a server before it is called another kind."""

MIN_LINES = 20
SHOWN_SHARE = 0.1
"""A prompt that grows by less of an appended output, as estimated, does not show it."""

_NEVER_DROPPED = frozenset({"model", "messages", "tools"})
_BYTES_A_TOKEN = 4
_LINE = "    {0}: the value of this entry is read from the table before the offset is added\n"

Client = Callable[[ModelSpec], HttpCompleter]
"""Makes a client of the server for a model, whose `body` may differ from the configured one."""


class Conversation:
    """The requests, in the order in which a run would come to them."""

    def __init__(self, client: Client, model: ModelSpec, offered: Offered, salt: str) -> None:
        self._client, self._model, self._offered, self._salt = client, model, offered, salt
        self._completer = client(model)

    def close(self) -> None:
        """Close the connections."""
        self._completer.close()

    def findings(self) -> Iterator[Finding]:
        """Yield what each request finds, up to the first that makes the others pointless."""
        opening = _opening(self._model.name)
        body, first = self._accepted(opening)
        yield body
        if first is None:
            return
        yield from self._usage(first)
        unforced = first
        if self._offered.tools:
            yield self._called(opening)
            unforced = self._ask(opening)
            if self._offered.tool_choice and unforced.prompt_tokens < first.prompt_tokens / 2:
                yield _tools_left_out(first, unforced)
        yield from self._growth(opening, unforced)

    def _accepted(self, opening: list[dict[str, Any]]) -> tuple[Finding, ChatReply | None]:
        """Send the body as runs send it; where it is refused, find the fields that are at fault."""
        configured, refusal = self._model.body, ""
        for _ in range(MAX_CHANGES):
            try:
                reply = self._ask(opening, self._offered.tool_choice)
            except ContextOverflowError as error:
                why = f"a short prompt does not fit: {error}"
                fix = "model.max_tokens and model.context_length must be within the server's"
                return Finding(what="body", found=why, fix=fix, blocks=True), None
            except RequestRefusedError as error:
                change = _change_asked_for(str(error), self._fields()) or self._change_found()
                refusal = refusal or str(error)
                if change is None:
                    break
                self._use(replace(self._model, body={**self._model.body, **change}))
                continue
            if self._model.body == configured:
                return Finding(what="body", found="the whole body is accepted"), reply
            fix = f"'model.body={_spelled(self._model.body)}'"
            return Finding(what="body", found=refusal, fix=fix, blocks=True), reply
        fix = "see the server's own words; model.api_key_env=VARIABLE names where a key is"
        return Finding(what="body", found=refusal, fix=fix, blocks=True), None

    def _change_found(self) -> dict[str, str | None] | None:
        """Return the one field without which the body is accepted."""
        for name in sorted(self._fields() - _NEVER_DROPPED):
            model = replace(self._model, body={**self._model.body, name: None})
            completer = self._client(model)
            try:
                self._ask(
                    _opening(model.name), choice=self._offered.tool_choice, completer=completer
                )
            except (RequestRefusedError, ContextOverflowError):
                continue
            else:
                return {name: None}
            finally:
                completer.close()
        return None

    def _usage(self, reply: ChatReply) -> Iterator[Finding]:
        cached = (
            "as well" if reply.cached_tokens is not None else "not: what caching saves is unknown"
        )
        yield Finding(what="usage", found=f"tokens are counted, cached ones {cached}")
        if (reply.cached_tokens or 0) > reply.prompt_tokens:
            found = f"{reply.cached_tokens:,} cached tokens in a prompt of {reply.prompt_tokens:,}"
            fix = "nothing here: such calls are priced as all cached, which is too cheap"
            yield Finding(what="usage", found=found, fix=fix)
        # Some end an answer a token or two late.
        if reply.completion_tokens > 2 * SHORT_ANSWER_TOKENS:
            found = f"{SHORT_ANSWER_TOKENS} tokens were allowed and {reply.completion_tokens} came"
            fix = "'model.body={max_tokens: NAME}', the server's own name of the field"
            yield Finding(what="length", found=found, fix=fix)

    def _called(self, opening: list[dict[str, Any]]) -> Finding:
        """Look whether what should be a tool call comes back as one."""
        choice = self._offered.tool_choice
        cap = min(CALL_TOKENS, self._model.max_tokens)
        reply = self._ask(opening, choice=choice, max_tokens=cap)
        called = [call.name for call in reply.tool_calls]
        wanted = choice["function"]["name"] if isinstance(choice, Mapping) else None
        if called:
            found = f"{', '.join(called)} came back as a call"
            ignored = wanted is not None and wanted not in called
            fix = (
                f"the server takes no notice of tool_choice: {wanted} was named" if ignored else ""
            )
            return Finding(what="tool calls", found=found, fix=fix)
        if reply.finish_reason == "length":
            found = f"the answer was cut at {reply.completion_tokens} tokens, before a call ended"
            return Finding(what="tool calls", found=found, fix="look at one run before a sweep")
        parser = "set model.serve.tool_parser=NAME"
        if self._model.kind == "endpoint":
            parser = "start the server with its tool parser and chat template"
        return Finding(
            what="tool calls",
            found=f"{wanted or 'a tool'} was asked for, and the answer has no call: "
            f"{reply.content[:100]!r}",
            fix=f"{parser}, or take model.mode=text agent=mini_text",
            # A model may answer in words unless it was told which tool to call.
            blocks=choice is not None,
        )

    def _growth(self, opening: list[dict[str, Any]], first: ChatReply) -> Iterator[Finding]:
        """Look whether a longer history costs more, and an edited one less."""
        limit = min(LONGEST_HISTORY_TOKENS, int(self._model.context_length * WINDOW_SHARE))
        history, last = opening, first.prompt_tokens
        give_up_s = time.monotonic() + PATIENCE_S
        while (size := _estimate(history)) < limit and time.monotonic() < give_up_s:
            longer = _longer(history, min(size, limit - size), text_mode=not self._offered.tools)
            try:
                reply = self._ask(longer)
            except ContextOverflowError as error:
                yield _overflown(error, _estimate(longer), self._model)
                return
            except ServerError as error:
                yield Finding(what="history", found=str(error), fix="see the server's log")
                return
            added = _estimate(longer) - size
            if reply.prompt_tokens - last < SHOWN_SHARE * added:
                yield _not_shown(last, reply.prompt_tokens, added)
                return
            history, last = longer, reply.prompt_tokens
        yield Finding(what="history", found=f"it grows as it is appended to, to {last:,} tokens")
        if history is not opening:
            yield self._edited(history, last)

    def _edited(self, history: list[dict[str, Any]], before: int) -> Finding:
        at = len(history) - 1
        edited = [*history[:at], {**history[at], "content": "[Earlier command output omitted.]"}]
        reply = self._ask(edited)
        if reply.prompt_tokens < before:
            saved = before - reply.prompt_tokens
            return Finding(what="edit", found=f"an output left out saves {saved:,} tokens")
        return Finding(
            what="edit",
            found=f"an output was left out, and {reply.prompt_tokens:,} prompt tokens remain",
            fix="no arm can save anything here; look at how the server counts prompt_tokens",
            blocks=True,
        )

    def _use(self, model: ModelSpec) -> None:
        self._completer.close()
        self._model, self._completer = model, self._client(model)

    def _fields(self) -> set[str]:
        """Return the names of the body's fields as they are sent now."""
        request = self._request(_opening(self._model.name), self._offered.tool_choice, 1)
        return set(json.loads(self._completer.body_of(request)))

    def _request(
        self, messages: Sequence[Mapping[str, Any]], choice: Any, max_tokens: int
    ) -> ChatRequest:
        return ChatRequest(
            messages=[json.dumps(message).encode() for message in messages],
            tools=self._offered.encoded,
            tool_choice=choice,
            seed=1,
            max_tokens=max_tokens,
            cache_salt=self._salt,
            extra=self._offered.extra or {},
        )

    def _ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        choice: Any = None,
        *,
        max_tokens: int = SHORT_ANSWER_TOKENS,
        completer: HttpCompleter | None = None,
    ) -> ChatReply:
        request = self._request(messages, choice, max_tokens)
        return (completer or self._completer).complete(request)


def _tools_left_out(forced: ChatReply, unforced: ChatReply) -> Finding:
    return Finding(
        what="tools",
        found=f"the prompt has {forced.prompt_tokens:,} tokens with a tool_choice and "
        f"{unforced.prompt_tokens:,} without: steps would not be shown the tools",
        fix="'model.extra_body={tool_choice: auto}'",
        blocks=True,
    )


def _not_shown(before: int, after: int, added: int) -> Finding:
    return Finding(
        what="history",
        found=f"an output of about {added:,} tokens was appended to a history of {before:,}, which "
        f"then cost {after:,}: the server leaves messages out in silence",
        fix="if the oldest ones, serve a larger window (num_ctx, --ctx-size) and set "
        "model.context_length to it; if tool results, serve a chat template that has them, or take "
        "model.mode=text agent=mini_text",
        blocks=True,
    )


def _overflown(error: ContextOverflowError, estimate: int, model: ModelSpec) -> Finding:
    window = error.window.window_tokens
    smaller = window is not None and window < model.context_length
    return Finding(
        what="window",
        found=f"a history of about {estimate:,} tokens does not fit, and model.context_length is "
        f"{model.context_length:,}: {error}",
        fix=f"model.context_length={window if smaller else 'TOKENS'}, or serve more",
        blocks=smaller,
    )


def _change_asked_for(refusal: str, sent: set[str]) -> dict[str, str | None] | None:
    """Return the field that a refusal names, and what it says to use instead."""
    named = [name for name in sorted(sent - _NEVER_DROPPED) if re.search(rf"\b{name}\b", refusal)]
    if not named:
        return None
    instead = re.search(r"[Uu]se ['\"`](\w+)['\"`] instead", refusal)
    return {named[0]: instead[1] if instead and instead[1] not in sent else None}


def _spelled(body: Mapping[str, str | None]) -> str:
    return "{" + ", ".join(f"{name}: {other or 'null'}" for name, other in body.items()) + "}"


def _opening(name: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": f"You are {name} and work in a shell, one command a turn."},
        {"role": "user", "content": "List the files here, then read table.py."},
    ]


def _longer(history: list[dict[str, Any]], tokens: int, *, text_mode: bool) -> list[dict[str, Any]]:
    """Return `history` with a turn appended whose output has about so many tokens, or a few."""
    n = len(history)
    lines = max(MIN_LINES, tokens * _BYTES_A_TOKEN // len(_LINE))
    output = "".join(_LINE.format(n) for n in range(lines))
    if text_mode:
        said = {"role": "assistant", "content": "```mswea_bash_command\ncat table.py\n```"}
        return [*history, said, {"role": "user", "content": f"{n}:\n{output}"}]
    call = {
        "id": f"call{n:05d}",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command": "cat table.py"}'},
    }
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": f"{n}:\n{output}"}
    return [*history, called, result]


def _estimate(history: Sequence[Mapping[str, Any]]) -> int:
    return len(json.dumps(list(history))) // _BYTES_A_TOKEN
