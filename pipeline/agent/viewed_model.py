"""mini-SWE-agent's `Model` over a server: the model is shown a view, never the history itself.

Owns the trajectory of a run, the standing edits, the calls made and what each sent. Before every
step call it asks the arm's policy for edits. Does not know which policy it is, how a server is
reached, or what a sandbox does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.agent.actions import Action, BadReplyError, actions_from_calls, actions_from_text
from pipeline.agent.encoded_view import EncodedView, encoded
from pipeline.agent.messages import (
    EXIT_ROLE,
    MiniMessage,
    assistant_dict,
    message_from_mini,
)
from pipeline.protocols import (
    AuxReply,
    AuxRequest,
    CallKind,
    ChatReply,
    ChatRequest,
    Completer,
    Policy,
    TokenCounter,
)
from pipeline.records.failure import ContextOverflowError, InfraError
from pipeline.records.run_record import CallRecord, text_sha256
from pipeline.records.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    PlanEvent,
    ToolCall,
    Trajectory,
)
from pipeline.spec.agent import AgentSpec
from pipeline.spec.model import ModelSpec
from pipeline.spec.run import request_seed

MIN_COMPLETION_TOKENS = 64
"""With less room than this for an answer, the window counts as full."""
TEMPLATE_TOKENS_PER_MESSAGE = 8
"""What a chat template adds to a message that the offline counter cannot see; an estimate."""

Elide = Callable[[Message], Edit | None]
"""The shortening of very long outputs that every arm shares."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestIdentity:
    """What every request of a run carries beside its messages."""

    seed: int
    instance_id: str
    cache_salt: str


class ViewedModel:
    """Answers mini's agent from a server that sees the arm's view."""

    def __init__(
        self,
        *,
        agent: AgentSpec,
        model: ModelSpec,
        policy: Policy,
        completer: Completer,
        counter: TokenCounter,
        elide: Elide,
        tools: Sequence[Mapping[str, Any]],
        identity: RequestIdentity,
    ) -> None:
        self.config = None
        self.calls: list[CallRecord] = []
        self.step_index = 0
        self._view = EncodedView(counter)
        self._agent, self._model = agent, model
        self._policy, self._completer, self._counter = policy, completer, counter
        self._elide, self._identity = elide, identity
        self._tool_names = tuple(tool["function"]["name"] for tool in tools)
        self._tools = encoded(list(tools)) if model.mode == "tools" else b"[]"
        self._tools_sha256 = text_sha256(self._tools.decode()) if model.mode == "tools" else None
        self._extra: Mapping[str, Any] = (
            {}
            if agent.parallel_tool_calls or model.mode == "text"
            else {"parallel_tool_calls": False}
        )
        self._n_absorbed = 0
        self._unrecorded: list[Edit] = []
        self._anchor: tuple[int, int, int] | None = None
        """Served prompt tokens, shown tokens and messages of the last answered call of the view."""

    @property
    def trajectory(self) -> Trajectory:
        """Everything that happened so far."""
        return self._view.trajectory

    @property
    def tool_lists(self) -> dict[str, str]:
        """The tool list as JSON text, by its hash; empty in text mode."""
        return {self._tools_sha256: self._tools.decode()} if self._tools_sha256 else {}

    # --- mini's protocol -------------------------------------------------------------------------
    def query(self, messages: list[MiniMessage], **_kwargs: Any) -> MiniMessage:
        """Return the assistant's next message, its actions in `extra`.

        Raises:
            BadReplyError: the reply is no usable action; it was paid for and is recorded.
            ContextOverflowError: the view no longer fits the window.
            InfraError: our side failed.
        """
        self.absorb(messages)
        self._put_in_force(self._policy.decide(self.trajectory, self._view.standing, self.ask))
        self.step_index += 1
        reply = self._send(CallKind.STEP, self._view.sent(), cap=self._model.max_tokens)
        if reply.finish_reason == "length" and self._cut_by_window():
            why = "the window was full before the answer was complete"
            self._amend(error=f"overflow: {why}", reply=reply)
            raise ContextOverflowError(why)
        return assistant_dict(reply, self._actions_of(reply))

    def format_message(self, **message: Any) -> MiniMessage:
        """Return the message as it is."""
        return message

    def get_template_vars(self, **_kwargs: Any) -> dict[str, Any]:
        """Return nothing: prompts see the task and the working directory only."""
        return {}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: runs are kept as records."""
        return {}

    # --- the history -----------------------------------------------------------------------------
    def absorb(self, messages: Sequence[MiniMessage]) -> None:
        """Add to the trajectory what the agent's history has beyond it."""
        for mini in messages[self._n_absorbed :]:
            self._n_absorbed += 1
            if mini["role"] == EXIT_ROLE:
                continue
            message = message_from_mini(
                mini,
                index=len(self.trajectory.messages),
                step_index=self.step_index,
                counter=self._counter,
            )
            self._view.append(message)
            self.trajectory.plan_events.extend(
                PlanEvent(
                    message_index=message.index,
                    step_index=message.step_index,
                    action=change.action,
                    plan_step=change.plan_step,
                    title=change.title,
                    status=change.status,
                    outcome=change.outcome,
                )
                for change in mini.get("extra", {}).get("plan_changes", ())
            )
            elision = self._elide(message)
            if elision is not None:
                self._put_in_force([elision])

    def template_dropped_tokens(self) -> int:
        """Return the reasoning tokens that the chat template removed by itself.

        Counted once for each message whose reasoning was dropped in some step call, by
        `ModelSpec.template_rules` (METHODS 4).
        """
        if self._model.template_rules == "keep_reasoning" or not self.calls:
            return 0
        # What came after the last call was shown to nobody.
        messages = self.trajectory.messages[: self.calls[-1].message_count]
        if self._model.template_rules == "drop_after_user":
            messages = messages[: self._last_user_index(len(messages))]
        return sum(
            message.reasoning_tokens
            for message in messages
            if (message.index, Part.REASONING) not in self._view.standing
        )

    def _last_user_index(self, n_messages: int) -> int:
        users = [m.index for m in self.trajectory.messages[:n_messages] if m.role == "user"]
        users += [index for index, part in self._view.standing if part is Part.INSERTED]
        return max(users, default=0)

    def _put_in_force(self, edits: Sequence[Edit]) -> None:
        if edits:
            self._view.apply(edits)
            self._unrecorded.extend(edits)

    def _actions_of(self, reply: ChatReply) -> list[Action]:
        try:
            if self._model.mode == "text":
                return actions_from_text(
                    reply, self._tool_names, several=self._agent.parallel_tool_calls
                )
            return actions_from_calls(reply, self._tool_names)
        except BadReplyError as error:
            # The bad message enters no history, so the call itself keeps it.
            self._amend(error=f"format: {error.error}", reply=reply)
            raise

    # --- calls -----------------------------------------------------------------------------------
    def ask(self, request: AuxRequest) -> AuxReply:
        """Make an auxiliary call for the policy, and keep its answer among the decisions.

        A call that does not fit the window answers nothing: an empty, unusable reply.
        """
        messages = None if request.messages is None else tuple(request.messages)
        transient = tuple(request.edits) if messages is None else ()
        try:
            reply = self._send(
                request.kind,
                self._view.sent(transient) if messages is None else [encoded(m) for m in messages],
                cap=request.max_tokens or self._model.max_tokens,
                transient=transient,
                own=messages,
                tool_choice=request.tool_choice if self._tools_sha256 else None,
                temperature=request.temperature,
            )
        except ContextOverflowError:
            reply = None
        if reply is not None:
            self._amend(error=None, reply=reply)
        answer = AuxReply(
            kind=request.kind,
            content=reply.content if reply else "",
            tool_calls=reply.tool_calls if reply else (),
            prompt_tokens=reply.prompt_tokens if reply else 0,
            completion_tokens=reply.completion_tokens if reply else 0,
        )
        self.trajectory.decisions.append(
            Decision(
                kind=request.kind.value,
                message_index=len(self.trajectory.messages),
                call_index=len(self.calls) - 1,
                content=answer.content,
                tool_calls=_kept_calls(answer.tool_calls),
                completion_tokens=answer.completion_tokens,
            )
        )
        return answer

    def _send(
        self,
        kind: CallKind,
        body: Sequence[bytes],
        *,
        cap: int,
        transient: tuple[Edit, ...] = (),
        own: tuple[Mapping[str, Any], ...] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float | None = None,
    ) -> ChatReply:
        identity = self._identity
        seed = request_seed(identity.seed, identity.instance_id, kind.value, self.step_index)
        sent = CallRecord(
            step_index=self.step_index,
            kind=kind.value,
            message_count=len(self.trajectory.messages),
            edits=tuple(self._unrecorded),
            transient=transient,
            messages=own,
            # A conversation of its own shares no prefix with the view and needs no tools.
            tools_sha256=self._tools_sha256 if own is None else None,
            tool_choice=tool_choice,
            request_seed=seed,
            temperature=temperature,
        )
        self._unrecorded.clear()
        max_tokens = self._room(cap, transient) if own is None else cap
        while True:
            request = ChatRequest(
                messages=body,
                tools=self._tools if own is None else b"[]",
                tool_choice=tool_choice,
                seed=seed,
                temperature=temperature,
                max_tokens=max_tokens,
                cache_salt=identity.cache_salt,
                extra=self._extra if own is None else {},
            )
            try:
                reply = self._completer.complete(request)
            except ContextOverflowError as error:
                # Our estimate of the prompt may be short: less room is tried until there is none.
                if max_tokens > MIN_COMPLETION_TOKENS:
                    max_tokens = max(MIN_COMPLETION_TOKENS, max_tokens // 2)
                    continue
                self.calls.append(replace(sent, max_tokens=max_tokens, error=f"overflow: {error}"))
                raise
            except InfraError as error:
                self.calls.append(replace(sent, max_tokens=max_tokens, error=str(error)))
                raise
            break
        self.calls.append(_answered(sent, reply, max_tokens))
        if own is None:
            self._anchor = (
                reply.prompt_tokens,
                self._view.tokens_with(transient),
                len(self.trajectory.messages),
            )
        return reply

    def _room(self, cap: int, transient: Sequence[Edit]) -> int:
        """Return how long the answer may get: `cap`, or what the window leaves."""
        shown = self._view.tokens_with(transient)
        n_messages = len(self.trajectory.messages)
        if self._anchor is None:
            served = self._counter.count(self._tools.decode())
            prompt = served + shown + TEMPLATE_TOKENS_PER_MESSAGE * n_messages
        else:
            served, shown_then, n_then = self._anchor
            prompt = served + shown - shown_then
            prompt += TEMPLATE_TOKENS_PER_MESSAGE * (n_messages - n_then)
        return max(min(cap, self._model.context_length - prompt), MIN_COMPLETION_TOKENS)

    def _cut_by_window(self) -> bool:
        asked = self.calls[-1].max_tokens
        return asked is not None and asked < self._model.max_tokens

    def _amend(self, *, error: str | None, reply: ChatReply) -> None:
        self.calls[-1] = replace(
            self.calls[-1],
            error=error,
            reply=reply.content,
            reply_tool_calls=_kept_calls(reply.tool_calls),
        )


def _kept_calls(calls: Sequence[Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in calls)


def _answered(sent: CallRecord, reply: ChatReply, max_tokens: int) -> CallRecord:
    return replace(
        sent,
        max_tokens=max_tokens,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=reply.completion_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        latency_s=reply.latency_s,
        ttft_s=reply.ttft_s,
        finish_reason=reply.finish_reason,
        retry_tokens=reply.retry_tokens,
        started_at=reply.started_at,
    )
