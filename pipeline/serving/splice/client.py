"""A run's requests to a server that splices: what moves is planned here, by token ids.

Before a request whose history was edited, the text between surviving stretches (placeholders, and
the first tokens behind them that are to be repaired) is computed by requests of one token, since
vLLM takes over one stretch only, right behind what it has. A request that goes wrong on the way
costs time and nothing else: the server computes what it does not have.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pipeline.protocols import ChatReply, ChatRequest
from pipeline.serving.client import accepted_salt
from pipeline.serving.connections import Connections, NotSentError, TransientError
from pipeline.serving.splice.matching import Piece, holes, planned_pieces


class ChatSender(Protocol):
    """What sends the chat requests themselves."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply."""
        ...

    def body_of(self, request: ChatRequest) -> bytes:
        """Return the request's bytes."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SpliceRule:
    """How much is computed in spite of the splice."""

    repair_tokens: int = 0
    """First tokens of every moved stretch that are computed."""
    refresh_edits: int = 0
    """After so many spliced edits the whole prompt is computed; 0: never."""


@dataclass
class _Work:
    """What the requests of one call took over and computed."""

    rotated: int = 0
    computed: int = 0

    def add(self, params: Any) -> None:
        said = params.get("splice", {}) if isinstance(params, dict) else {}
        self.rotated += int(said.get("rotated", 0))
        self.computed += int(said.get("computed", 0))


class SplicedCompleter:
    """A `Completer` for one run, which must make its requests one after the other."""

    def __init__(
        self,
        chat: ChatSender,
        base_url: str,
        model: str,
        *,
        run: str,
        rule: SpliceRule,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            chat: sends the requests themselves.
            base_url: of the server, up to and including `/v1`.
            model: the name that requests carry.
            run: of this attempt at a run and of no other: approximate keys lie under it.
            rule: how much is computed in spite of the splice.
            clock: monotonic, for durations.
        """
        root = base_url.rstrip("/").removesuffix("/v1")
        self._chat, self._model, self._rule, self._clock = chat, model, rule, clock
        self._pool = Connections(root, 10.0, 600.0, None)
        self._run = run
        self._salt = ""
        self._last: list[int] = []
        self._n_spliced = self._n_refreshes = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; what it says was cached is what no request of the call computed.

        Raises:
            ServerError: as the sender of chats does.
            ContextOverflowError: likewise.
        """
        if not request.is_view:
            return self._chat.complete(request)
        started = self._clock()
        ids = self._prompt_ids(request)
        pieces = self._planned(ids)
        self._salt = accepted_salt(f"{self._run}.{self._n_refreshes}")
        work = _Work()
        for end in holes(pieces):
            self._prefill(ids[:end], pieces, work)
        waited_s = self._clock() - started
        theirs = request.extra.get("kv_transfer_params") or {}
        params = {**theirs, "splice": self._params(pieces)}
        extra = {**request.extra, "return_token_ids": True, "kv_transfer_params": params}
        reply = self._chat.complete(replace(request, cache_salt=self._salt, extra=extra))
        self._last = [*(reply.prompt_token_ids or ()), *(reply.completion_token_ids or ())]
        return _accounted(reply, work, waited_s)

    def close(self) -> None:
        """Have the server forget the run, and close all connections."""
        self._forget()
        self._pool.close()
        self._chat.close()

    def _planned(self, ids: Sequence[int]) -> list[Piece]:
        """Return what of the prompt moves; nothing where it is time to compute everything."""
        pieces = planned_pieces(self._last, ids, self._rule.repair_tokens)
        if len(pieces) > 1:
            self._n_spliced += 1
        if 0 < self._rule.refresh_edits < self._n_spliced:
            # Under the old salt, vLLM's own cache would hit the approximate blocks again.
            self._forget()
            self._n_refreshes, self._n_spliced = self._n_refreshes + 1, 0
            return []
        return pieces

    def _forget(self) -> None:
        if self._salt:
            end = {"splice": {"run": self._salt, "end": True}}
            self._posted("/v1/completions", self._one_token([0], end))

    def _params(self, pieces: Sequence[Piece], *, part: bool = False) -> dict[str, Any]:
        said: dict[str, Any] = {"run": self._salt, "pieces": [[p.new, p.old, p.n] for p in pieces]}
        return said | ({"part": True} if part else {})

    def _prompt_ids(self, request: ChatRequest) -> list[int]:
        answer = self._posted("/tokenize", self._chat.body_of(request))
        tokens = answer.get("tokens")
        return tokens if isinstance(tokens, list) else []

    def _prefill(self, ids: Sequence[int], pieces: Sequence[Piece], work: _Work) -> None:
        params = {"splice": self._params(pieces, part=True)}
        answer = self._posted("/v1/completions", self._one_token(ids, params))
        work.add(answer.get("kv_transfer_params"))

    def _one_token(self, ids: Sequence[int], params: dict[str, Any]) -> bytes:
        body = {
            "model": self._model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0,
            "cache_salt": self._salt,
            "kv_transfer_params": params,
        }
        return json.dumps(body).encode()

    def _posted(self, path: str, body: bytes) -> dict[str, Any]:
        """Return the answer, or nothing: the chat request itself meets what is wrong."""
        try:
            status, data = self._pool.post(path, body)
            answer = json.loads(data) if status < 400 else {}
        except (NotSentError, TransientError, ValueError):
            return {}
        return answer if isinstance(answer, dict) else {}


def _accounted(reply: ChatReply, work: _Work, waited_s: float) -> ChatReply:
    params = reply.server_params
    if not isinstance(params, dict) or "splice" not in params:
        return replace(reply, latency_s=reply.latency_s + waited_s)
    work.add(params)
    computed = min(work.computed, reply.prompt_tokens)
    rotated = min(work.rotated, reply.prompt_tokens - computed)
    return replace(
        reply,
        latency_s=reply.latency_s + waited_s,
        cached_tokens=reply.prompt_tokens - computed,
        reused_tokens=reply.prompt_tokens - computed - rotated,
        rotated_tokens=rotated,
        recomputed_tokens=computed,
        server_params={k: v for k, v in params.items() if k != "splice"} or None,
    )
