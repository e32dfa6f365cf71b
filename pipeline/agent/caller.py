"""The calls of one run: what each request carries, how long its answer may be, what it cost.

Owns the seeds, the salt, the tool list and the record of every call. A full window is met here: a
prompt that our estimate took for shorter is tried with less room for the answer before the window
counts as full. Does not know policies, nor what an answer asks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.agent.encoded_view import EncodedView, encoded
from pipeline.protocols import ChatReply, ChatRequest, Completer
from pipeline.records.failure import ContextOverflowError, InfraError
from pipeline.records.full_window import FullWindow
from pipeline.records.json_columns import json_text
from pipeline.records.run_record import OVERFLOW, CallRecord, text_sha256
from pipeline.spec.model import ModelSpec
from pipeline.spec.run import request_seed
from pipeline.views.policy import CallKind, TokenCounter
from pipeline.views.trajectory import Edit
from pipeline.views.walk import kept_calls

MIN_COMPLETION_TOKENS = 64
"""With less room than this for an answer, the window counts as full."""
TEMPLATE_TOKENS_PER_MESSAGE = 8
"""What a chat template adds to a message that the offline counter cannot see; an estimate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestIdentity:
    """What every request of a run carries beside its messages."""

    seed: int
    instance_id: str
    cache_salt: str


class Caller:
    """Sends a run's requests and keeps a record of each."""

    def __init__(
        self,
        *,
        model: ModelSpec,
        completer: Completer,
        counter: TokenCounter,
        view: EncodedView,
        tools: Sequence[Mapping[str, Any]],
        parallel_tool_calls: bool,
        identity: RequestIdentity,
    ) -> None:
        self.calls: list[CallRecord] = []
        self.step_index = 0
        """Of the last step call; auxiliary calls do not advance it (docs/methods.md, Protocol)."""
        self.has_tools = model.mode == "tools"
        self._model, self._completer, self._view = model, completer, view
        self._identity = identity
        self._tools = encoded(list(tools)) if self.has_tools else b"[]"
        self._tools_sha256 = text_sha256(self._tools.decode()) if self.has_tools else None
        self._tool_tokens = counter.count(self._tools.decode())
        self._extra: Mapping[str, Any] = (
            {"parallel_tool_calls": False} if self.has_tools and not parallel_tool_calls else {}
        )
        self._unrecorded: list[Edit] = []
        self._pruner_said: tuple[str, float] | None = None
        self._window = model.context_length
        """Ours, until the server turns out to have less."""
        self._anchor: tuple[int, int, int] | None = None
        """Served prompt tokens, shown tokens and messages of the last answered call of the view."""

    @property
    def tool_lists(self) -> dict[str, str]:
        """The tool list as JSON text, by its hash; empty in text mode."""
        return {self._tools_sha256: self._tools.decode()} if self._tools_sha256 else {}

    def note_edits(self, edits: Sequence[Edit]) -> None:
        """Record `edits` with the next call, the first at which they are in force."""
        self._unrecorded.extend(edits)

    def note_pruner(self, answer: str, wall_s: float) -> None:
        """Record with the next call what the arm's line pruner said and how long it took."""
        self._pruner_said = (answer, wall_s)

    def step(self, extra: Mapping[str, Any] | None = None) -> ChatReply:
        """Make the next step call, with `extra` body fields.

        Raises:
            ContextOverflowError: the view, or the answer to it, does not fit the window.
            InfraError: our side failed.
        """
        self.step_index += 1
        reply = self.send(CallKind.STEP, extra=extra or {})
        asked = self.calls[-1].max_tokens
        if reply.finish_reason == "length" and asked is not None and asked < self._model.max_tokens:
            why = "the window was full before the answer was complete"
            self.amend(error=f"{OVERFLOW}{why}", reply=reply)
            raise ContextOverflowError(why)
        return reply

    def send(
        self,
        kind: CallKind,
        *,
        transient: tuple[Edit, ...] = (),
        own: tuple[Mapping[str, Any], ...] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return the answer to the view under `transient`, or to a conversation of its `own`.

        Raises:
            ContextOverflowError: the prompt does not fit the window.
            InfraError: our side failed.
        """
        identity = self._identity
        seed = request_seed(identity.seed, identity.instance_id, kind.value, self.step_index)
        cap = self._model.max_tokens if max_tokens is None else max_tokens
        # A conversation of its own shares no prefix with the view and needs no tools.
        is_view = own is None
        shown = self._view.tokens_with(transient)
        pruner_answer, pruner_s = self._pruner_said or (None, None)
        sent = CallRecord(
            step_index=self.step_index,
            kind=kind.value,
            message_count=len(self._view.trajectory.messages),
            edits=tuple(self._unrecorded),
            transient=transient,
            messages=own,
            tools_sha256=self._tools_sha256 if is_view else None,
            tool_choice=tool_choice,
            request_seed=seed,
            temperature=temperature,
            max_tokens=self._room(cap, shown) if is_view else cap,
            pruner_answer=pruner_answer,
            pruner_s=pruner_s,
        )
        self._unrecorded.clear()
        self._pruner_said = None
        request = ChatRequest(
            messages=self._view.sent(transient) if own is None else [encoded(m) for m in own],
            tools=self._tools if is_view else b"[]",
            tool_choice=tool_choice,
            seed=seed,
            temperature=temperature,
            max_tokens=sent.max_tokens or cap,
            cache_salt=identity.cache_salt,
            extra={**self._extra, **(extra or {})} if is_view else {},
            is_view=is_view,
        )
        reply = self._answer(request, sent)
        if is_view:
            self._anchor = (reply.prompt_tokens, shown, sent.message_count)
        return reply

    def amend(self, *, error: str | None, reply: ChatReply, ignored_ids: str | None = None) -> None:
        """Keep an answer that enters no history on the record of the last call."""
        self.calls[-1] = replace(
            self.calls[-1],
            error=error,
            reply=reply.content,
            reply_reasoning=reply.reasoning,
            reply_tool_calls=kept_calls(reply.tool_calls),
            ignored_ids=ignored_ids,
        )

    def keep_server_answer(self, answer: Mapping[str, Any]) -> None:
        """Keep on the record of the last call what the server was asked along with it."""
        self.calls[-1] = replace(self.calls[-1], server_answer=json_text(answer))

    def _answer(self, request: ChatRequest, sent: CallRecord) -> ChatReply:
        too_long = None
        while True:
            sent = replace(sent, max_tokens=request.max_tokens)
            try:
                reply = self._completer.complete(request)
            except ContextOverflowError as error:
                too_long = request.max_tokens
                fitting = self._fitting(too_long, error.window)
                if fitting is not None:
                    request = replace(request, max_tokens=fitting)
                    continue
                self.calls.append(replace(sent, error=f"{OVERFLOW}{error}"))
                raise
            except InfraError as error:
                self.calls.append(replace(sent, error=str(error)))
                raise
            if too_long is not None:
                # So much did not fit: what the server has is less, for the steps to come as well.
                self._window = min(self._window, reply.prompt_tokens + too_long - 1)
            self.calls.append(_with_reply(sent, reply))
            return reply

    def _fitting(self, asked: int, said: FullWindow) -> int | None:
        """Return the length of an answer to try instead of `asked`; None where none is left."""
        if said.window_tokens is not None:
            self._window = min(self._window, said.window_tokens)
        room = said.room(asked)
        if room is not None and room < asked:
            return room if room >= MIN_COMPLETION_TOKENS else None
        # Our estimate of the prompt may be short: less room is tried until there is none.
        return max(MIN_COMPLETION_TOKENS, asked // 2) if asked > MIN_COMPLETION_TOKENS else None

    def _room(self, cap: int, shown_tokens: int) -> int:
        """Return how long the answer may get: `cap`, or what the window leaves."""
        n_messages = len(self._view.trajectory.messages)
        served, shown_then, n_then = self._anchor or (self._tool_tokens, 0, 0)
        prompt = served + shown_tokens - shown_then
        prompt += TEMPLATE_TOKENS_PER_MESSAGE * (n_messages - n_then)
        return max(min(cap, self._window - prompt), MIN_COMPLETION_TOKENS)


def _with_reply(sent: CallRecord, reply: ChatReply) -> CallRecord:
    return replace(
        sent,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        reused_tokens=reply.reused_tokens,
        rotated_tokens=reply.rotated_tokens,
        recomputed_tokens=reply.recomputed_tokens,
        completion_tokens=reply.completion_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        lone_surrogates=reply.lone_surrogates,
        latency_s=reply.latency_s,
        ttft_s=reply.ttft_s,
        finish_reason=reply.finish_reason,
        retry_tokens=reply.retry_tokens,
        started_at=reply.started_at,
    )
