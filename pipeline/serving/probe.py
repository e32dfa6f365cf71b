"""What a server's prefix cache makes of an edited history, asked of the server itself.

Accounting by longest common prefix says what a cache *could* have had. A server with plain
attention has just that, in whole blocks; a hybrid model keeps state only at some boundaries, and a
prompt that departs from an earlier one in its middle may hit nothing (docs/methods.md, Cache
accounting). So before a sweep a long conversation is sent, then again with one message of its
middle shortened and with one appended, and what the server reports is put beside what the common
prefix allows.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline.host.proxies import Proxy
from pipeline.protocols import ChatReply, ChatRequest, Completer
from pipeline.records.failure import ServerError
from pipeline.serving.metrics import cache_config_of, metrics_text
from pipeline.spec.model import ModelSpec

Chat = Sequence[Mapping[str, str]]

LINES_A_TURN = 20
"""Length of each output of the conversation."""
TOKENS_A_LINE = 25
"""About; vocabularies differ most in how they write numbers."""

_LINE = "    value = table[{n}] + offset  # line {n} of a listing that takes some room\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCall:
    """One prompt of the probe, and how much of it the server had."""

    what: str
    """`fresh`, `again`, `appended` or `edited`."""
    prompt_tokens: int
    cached_tokens: int | None
    """As the server reports it."""
    lcp_tokens: int | None
    """Common prefix with the prompts before, at most `prompt_tokens - 1`; None without ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheProbe:
    """How a server's prefix cache behaves."""

    block_tokens: int | None
    cache_mode: str
    """`plain`, the mode in which a hybrid model's states are kept (`align`), or `unknown`."""
    max_num_batched_tokens: int | None
    """Of the model's config."""
    state_interval_tokens: int | None = None
    """Of the model's config: so often a hybrid's state is kept within a prompt; None: never."""
    calls: tuple[ProbeCall, ...]

    @property
    def follows_prefix(self) -> bool | None:
        """Whether every prompt had what its common prefix allows; None where it cannot be told."""
        known = [call for call in self.calls if call.lcp_tokens is not None]
        if not known or self.block_tokens is None:
            return None
        block = self.block_tokens
        return all(
            call.lcp_tokens is not None and call.cached_tokens == call.lcp_tokens // block * block
            for call in known
        )

    def expected(self, call: ProbeCall) -> int | None:
        """Return what the config lets one expect of a prompt's cached tokens; None without ids.

        Plain attention has the common prefix in whole blocks. A hybrid goes on from a state: one at
        the last whole block of an earlier prompt, or at an interval, within that prefix.
        """
        if call.lcp_tokens is None or self.block_tokens is None:
            return None
        if self.cache_mode == "plain":
            return call.lcp_tokens // self.block_tokens * self.block_tokens
        before = self.calls[: self.calls.index(call)]
        ends = [c.prompt_tokens // self.block_tokens * self.block_tokens for c in before]
        kept = max((end for end in ends if end <= call.lcp_tokens), default=0)
        interval = self.state_interval_tokens
        return max(kept, call.lcp_tokens // interval * interval) if interval else kept

    @property
    def as_expected(self) -> bool | None:
        """Whether every prompt had at least what the config promises; None where none can tell."""
        known = [(c.cached_tokens, self.expected(c)) for c in self.calls]
        pairs = [(cached or 0, wanted) for cached, wanted in known if wanted is not None]
        return all(cached >= wanted for cached, wanted in pairs) if pairs else None

    def text(self) -> str:
        """Return it in a few lines; empty where the server says nothing of its cache."""
        if self.cache_mode == "unknown" and all(c.cached_tokens is None for c in self.calls):
            return ""
        lines = [
            f"prefix cache: {self.cache_mode}, block {self.block_tokens or 'unknown'} tokens, "
            f"max_num_batched_tokens {self.max_num_batched_tokens or 'unknown'}"
        ]
        lines += [
            f"  {call.what:<9} {call.prompt_tokens:>7,} tokens: {_or_unknown(call.cached_tokens)} "
            f"cached, {_or_unknown(self.expected(call))} expected, "
            f"{_or_unknown(call.lcp_tokens)} in the common prefix"
            for call in self.calls
        ]
        verdict = {
            True: "what is cached is the common prefix in whole blocks",
            False: "less is cached than the common prefix: lcp_block_tokens is an upper bound here",
            None: "whether it is the common prefix cannot be told",
        }[self.follows_prefix]
        return "\n".join([*lines, f"  {verdict}"])


def edited_history_probe(
    completer: Completer,
    model: ModelSpec,
    base_url: str,
    *,
    salt: str,
    n_turns: int | None = None,
    proxy: Proxy | None = None,
) -> CacheProbe:
    """Return how the server at `base_url` caches an edited history. Takes seconds.

    Args:
        completer: asks that server; with `model.return_token_ids` the comparison is exact.
        model: as served.
        base_url: up to and including `/v1`.
        salt: of this probe alone, so that nothing of it is cached yet.
        n_turns: of the conversation; None: 12, or as many as half the window holds.
        proxy: the way to the server, where there is one.

    Raises:
        ServerError: the server does not answer.
        ContextOverflowError: the conversation does not fit; ask for fewer turns.
    """
    if n_turns is None:
        n_turns = max(3, min(12, model.context_length // (2 * LINES_A_TURN * TOKENS_A_LINE)))
    chat = conversation(n_turns, LINES_A_TURN)
    middle = len(chat) // 2 - len(chat) // 2 % 2
    edited = [*chat[:middle], {**chat[middle], "content": "(removed)"}, *chat[middle + 1 :]]
    appended = [*chat, *conversation(1, LINES_A_TURN)[1:]]
    asked = {"fresh": chat, "again": chat, "appended": appended, "edited": edited}
    # A constraint on the model's answers would only lengthen these.
    extra = {"structured_outputs": None} if "structured_outputs" in model.extra_body else {}
    earlier: list[Sequence[int]] = []
    calls = []
    for what, messages in asked.items():
        reply = completer.complete(_request(messages, salt, extra))
        calls.append(_call(what, reply, earlier))
        if reply.cached_tokens is None and reply.prompt_token_ids is None:
            break  # such a server tells nothing, however often it is asked
        if reply.prompt_token_ids is not None:
            earlier.append([*reply.prompt_token_ids, *(reply.completion_token_ids or ())])
    config = {}
    with suppress(ServerError):
        config = dict(cache_config_of(metrics_text(base_url, proxy=proxy)))
    mode = config.get("mamba_cache_mode", "none" if config else "unknown")
    return CacheProbe(
        block_tokens=_number(config.get("block_size")),
        cache_mode="plain" if mode in ("none", "None") else mode,
        max_num_batched_tokens=model.serve.max_num_batched_tokens,
        state_interval_tokens=model.serve.state_interval_tokens,
        calls=tuple(calls),
    )


def conversation(n_turns: int, lines_a_turn: int) -> list[dict[str, str]]:
    """Return a chat of listings and short remarks, each turn unlike the others."""
    chat = [{"role": "system", "content": "You read listings and say what stands out in them."}]
    for turn in range(n_turns):
        first = turn * lines_a_turn
        listing = "".join(_LINE.format(n=n) for n in range(first, first + lines_a_turn))
        chat.append({"role": "user", "content": f"Listing {turn}:\n{listing}"})
        chat.append({"role": "assistant", "content": f"Nothing stands out in listing {turn}."})
    chat.append({"role": "user", "content": "And on the whole?"})
    return chat


def _request(messages: Chat, salt: str, extra: Mapping[str, Any]) -> ChatRequest:
    return ChatRequest(
        messages=[json.dumps(message).encode() for message in messages],
        seed=0,
        temperature=0.0,
        max_tokens=4,
        cache_salt=salt,
        extra=extra,
    )


def _call(what: str, reply: ChatReply, earlier: Sequence[Sequence[int]]) -> ProbeCall:
    ids = reply.prompt_token_ids
    lcp = None
    if ids is not None:
        lcp = min(max((_common(ids, old) for old in earlier), default=0), reply.prompt_tokens - 1)
    return ProbeCall(
        what=what,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        lcp_tokens=lcp,
    )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        n += 1
    return n


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _or_unknown(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
