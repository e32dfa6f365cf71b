"""What an arm would have sent over a recorded run, call by call.

The recorded behavior is held fixed: the same commands, the same outputs, whatever the arm would
have shown. So replay prices an arm's views exactly and says nothing about what the agent would have
done differently. Files, price lists and printing belong to the command `pipeline.replay`.

Prompt sizes are the server's where the recording has them: what the offline counter misses at the
first call (tool list, template) is a fixed part of every prompt, and every message has the size by
which the prompts grew (`served_sizes`), so that the recorded arm gets exactly the recorded sizes
and an edit removes what the output took.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pipeline.accounting.cache_cost import CacheAccount, CallCache, Piece
from pipeline.accounting.prompt_pieces import PlainPieces, PromptChange, PromptPieces
from pipeline.accounting.template import TemplateRules, rendered_prompt
from pipeline.arms.line_pruning import is_answer_of
from pipeline.replaying.replay_choices import AnswerLengths, stand_in
from pipeline.replaying.served_sizes import Continued, ServedSizes
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.policy import AuxReply, AuxRequest, CallKind, Policy, TokenCounter
from pipeline.views.shown import ShownTokens, idle_s
from pipeline.views.thinning import thinned
from pipeline.views.trajectory import SHARED_REASONS, Edit, Edits, Message, Trajectory
from pipeline.views.walk import Growing, PlainView, Walk, reply_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCall:
    """One recorded step call."""

    n_messages: int
    """Messages of the trajectory when it was made."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Read from the cache, as the server reported."""
    written_tokens: int | None = None
    """Written to the cache, likewise."""
    written_1h_tokens: int | None = None
    """Of these, to be kept for an hour; None: it is not said."""
    model: str | None = None
    """Where it may change within the run; None: the run's."""
    started_at: float | None = None
    edits: tuple[Edit, ...] = ()
    """Edits that were first in force at this call, auxiliary calls since the last one included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A run to be replayed."""

    instance_id: str
    trajectory: Trajectory
    calls: tuple[StepCall, ...]
    """Those of `n_repeated` first, which warm the cache and are billed elsewhere."""
    n_repeated: int = 0
    aside: tuple[StepCall, ...] = ()
    """Billed beside the conversation, and not replayed."""
    model: str | None = None
    agent: str = ""
    notes: tuple[str, ...] = ()
    """What its reader left out, estimated or did not believe."""

    @property
    def own_calls(self) -> tuple[StepCall, ...]:
        """The calls that are billed here."""
        return self.calls[self.n_repeated :]

    @property
    def shared_edits(self) -> dict[int, tuple[Edit, ...]]:
        """What the scaffold took out for every arm, by the call at which it came into force."""
        return {
            k: tuple(e for e in call.edits if e.reason in SHARED_REASONS)
            for k, call in enumerate(self.calls)
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySettings:
    """How recordings are replayed."""

    seed: int = 0
    context_length: int = 131_072
    block_tokens: int = 16
    rules: TemplateRules = "keep_reasoning"
    cleanup_choice: str = "unused"
    """The rule for cleanups that the recording has no answer to."""
    cleanup_every: int = 10
    """Turns between cleanups where the recording has no plan."""
    lengths: AnswerLengths = field(default_factory=AnswerLengths)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedCall:
    """One call of a replayed arm."""

    kind: str
    cache: CallCache
    completion_tokens: int
    idle_s: float | None = None
    """Since the last call, where that was measured: a cache may have lost the prefix."""
    model: str | None = None
    is_other_model: bool = False
    """The call before was another model's, in whose cache the prefix is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """An arm over one recording."""

    instance_id: str
    arm: str
    calls: tuple[ReplayedCall, ...]
    """Those that are billed here, auxiliary ones included."""
    edits_by_step: tuple[tuple[Edit, ...], ...]
    """The edits the arm made before each step call; shared elisions are not among them."""
    template_dropped_tokens: int
    stand_ins: int
    """Answers that came from a rule and not from the recording."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits the arm made, in order."""
        return tuple(chain.from_iterable(self.edits_by_step))


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """How a recording's offline counts became served sizes."""

    hidden_tokens: int
    """Of the first prompt, what the messages do not explain: system prompt, tools, template."""
    ratio: float
    """Served tokens of one offline token."""
    served_tokens: int
    """What the ratio was learned from."""
    residual_tokens: float
    """By how much one ratio misses the single steps, taken together."""


class Replayer:
    """Replays arms over one recording; what does not depend on the arm is computed once."""

    def __init__(
        self, recording: Recording, counter: TokenCounter, settings: ReplaySettings
    ) -> None:
        self._recording = recording
        self._settings = settings
        self._tokens = ShownTokens(counter)
        self._counter = _Known(counter, self._tokens)
        self._plain: PlainPieces = {}
        self._overhead, self._sizes = self._measured()

    def replay(self, arm: ArmSpec) -> Replayed:
        """Return what `arm` would have sent."""
        policy = policy_for(
            self._for_recording(arm),
            seed=self._settings.seed,
            count_tokens=self._counter,
            context_length=self._settings.context_length,
        )
        return self.replay_policy(arm.name, policy)

    def replay_policy(self, name: str, policy: Policy) -> Replayed:
        """Return what `policy` would have sent."""
        return _Replay(self, name, policy).run()

    def shown_tokens(self, message: Message, edits: Edits) -> int:
        """Return the served tokens of a message under `edits`, as every prompt would show it."""
        n_tokens = self._tokens.of_message(message, edits)
        if self._settings.rules == "no_reasoning":
            n_tokens -= message.reasoning_tokens
        return self._sizes.piece(Piece(text="", n_tokens=n_tokens, origin=message.index)).n_tokens

    @property
    def calibration(self) -> "Calibration":
        """What the recording's sizes were learned from."""
        return Calibration(
            hidden_tokens=self._overhead,
            ratio=self._sizes.ratio,
            served_tokens=self._sizes.served_tokens,
            residual_tokens=self._sizes.residual_tokens,
        )

    def _for_recording(self, arm: ArmSpec) -> ArmSpec:
        """Return the arm with a trigger that the recording can fire."""
        if self._recording.trajectory.plan_events:
            return arm
        return replace(arm, policy=arm.policy.without_plan(self._settings.cleanup_every))

    def _measured(self) -> tuple[int, ServedSizes]:
        """Return the fixed part of every prompt, and the served sizes of messages."""
        shown = PromptPieces(self._tokens, rules=self._settings.rules, plain=self._plain)
        view = _TrackedView()
        history = Growing(self._recording.trajectory)
        view.trajectory = history.trajectory
        overhead = n_pieces = 0
        first: Sequence[Piece] = ()
        continued: list[Continued] = []
        before: StepCall | None = None
        for call in self._recording.calls:
            view.apply(call.edits)
            history.grow_to(call.n_messages)
            change = shown.update(history.trajectory, view.standing, view.touched)
            view.touched.clear()
            served = call.prompt_tokens
            if before is None:
                offline = sum(piece.n_tokens for piece in change.pieces)
                overhead = max(0, (served or 0) - offline)
                first = change.pieces
            elif change.kept == n_pieces and served and before.prompt_tokens:
                growth = served - before.prompt_tokens
                if growth > 0:
                    continued.append(
                        Continued(
                            pieces=change.pieces,
                            answer=before.n_messages,
                            answer_tokens=self._rendered_tokens(before),
                            growth=growth,
                        )
                    )
            n_pieces = change.kept + len(change.pieces)
            before = call
        return overhead, ServedSizes(first, continued)

    def _rendered_tokens(self, call: StepCall) -> int | None:
        """Return the completion tokens of a call that the next prompt shows."""
        if call.completion_tokens is None:
            return None
        answer = self._recording.trajectory.messages[call.n_messages]
        dropped = answer.reasoning_tokens if self._settings.rules == "no_reasoning" else 0
        return max(0, call.completion_tokens - dropped)


class _Known:
    """The counter with its memory, so that a text is counted once for all arms."""

    def __init__(self, counter: TokenCounter, tokens: ShownTokens) -> None:
        self.name = counter.name
        self._counter, self._tokens = counter, tokens

    def count(self, text: str) -> int:
        return self._tokens.of_text(text)

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        return thinned(text, self._counter, chosen)


@dataclass(slots=True)
class _TrackedView(PlainView):
    """A view that knows which messages were edited since it was last priced."""

    touched: set[int] = field(default_factory=set)

    def apply(self, edits: Sequence[Edit]) -> None:
        PlainView.apply(self, edits)
        self.touched.update(edit.message_index for edit in edits)


class _Replay:
    """One arm over one recording, under way."""

    def __init__(self, owner: Replayer, name: str, policy: Policy) -> None:
        self._recording = owner._recording
        self._settings = owner._settings
        self._name = name
        self._tokens = owner._tokens
        self._sizes = owner._sizes
        self._pieces = PromptPieces(self._tokens, rules=self._settings.rules, plain=owner._plain)
        self._overhead = Piece(text="\x00tools\n", n_tokens=owner._overhead)
        self._account = CacheAccount(owner._counter, block_tokens=self._settings.block_tokens)
        self._history = Growing(self._recording.trajectory)
        self._view = _TrackedView(trajectory=self._history.trajectory)
        self._walk = Walk(policy, self._view, self._answer)
        self._recorded = {
            (d.kind, d.message_index): d for d in self._recording.trajectory.decisions
        }
        self._calls: list[ReplayedCall] = []
        self._made: list[tuple[Edit, ...]] = []
        self._stand_ins = 0
        self._n_repeated = 0
        self._model: str | None = None
        self._is_other_model = False
        self._charged_at = 0
        """Messages at the last call of the view."""

    def run(self) -> Replayed:
        shared = self._recording.shared_edits
        before = self._recording.calls[0] if self._recording.calls else None
        for number, call in enumerate(self._recording.calls):
            self._model = call.model
            # A call that does not name its model is no sign of a change.
            self._is_other_model = (
                before is not None and None not in (before.model, call.model)
            ) and before.model != call.model
            before = call
            self._history.grow_to(call.n_messages)
            self._view.apply(shared[number])
            self._made.append(tuple(self._walk.step()))
            view = self._view
            change = self._pieces.update(view.trajectory, view.standing, view.touched)
            view.touched.clear()
            answer = self._said(call.n_messages)
            completion = call.completion_tokens
            if completion is None:
                completion = answer.n_tokens + answer.reasoning_tokens if answer else 0
            self._charge("step", change, completion, answer)
            if number < self._recording.n_repeated:
                self._n_repeated = len(self._calls)
        return Replayed(
            instance_id=self._recording.instance_id,
            arm=self._name,
            calls=tuple(self._calls[self._n_repeated :]),
            edits_by_step=tuple(self._made),
            template_dropped_tokens=self._pieces.template_dropped_tokens,
            stand_ins=self._stand_ins,
        )

    def _answer(self, request: AuxRequest) -> AuxReply:
        """Answer a question of the policy as the recording does, or else by rule, and charge it."""
        trajectory = self._view.trajectory
        here = len(trajectory.messages)
        recorded = self._recorded.get((request.kind.value, here))
        if recorded is not None and request.kind is CallKind.LINES:
            recorded = recorded if is_answer_of(recorded.content, request.pruner) else None
        if recorded is not None:
            reply = reply_of(recorded)
        else:
            self._stand_ins += 1
            reply = stand_in(
                request,
                trajectory,
                rule=self._settings.cleanup_choice,
                lengths=self._settings.lengths,
            )
        if request.kind is CallKind.LINES:
            # A pruner's answer is not a call of the model.
            return reply
        if request.messages is None:
            change = self._pieces.update_with(
                trajectory, self._view.standing, request.edits, self._view.touched
            )
            self._view.touched.clear()
            self._charge(request.kind.value, change, reply.completion_tokens)
        else:
            self._charge_aside(request, reply.completion_tokens)
        return replace(reply, call_index=len(self._calls) - 1)

    def _charge(
        self, kind: str, change: PromptChange, completion_tokens: int, answer: Message | None = None
    ) -> None:
        # The fixed part of every prompt stands before the pieces of the view.
        first = not self._calls or change.kept == 0
        pieces = [self._sizes.piece(piece) for piece in change.pieces]
        cache = self._account.charge(
            [self._overhead, *pieces] if first else pieces,
            kept=0 if first else change.kept + 1,
            # What the next prompt shows of the answer, since that is what can be a hit.
            completion="" if answer is None else self._pieces.rendered_answer(answer),
            answer=None if answer is None else answer.index,
        )
        # A cleanup before the step call has warmed the prefix for it.
        here = len(self._view.trajectory.messages)
        is_first = here != self._charged_at
        self._charged_at = here
        self._calls.append(
            ReplayedCall(
                kind=kind,
                cache=cache,
                completion_tokens=completion_tokens,
                idle_s=idle_s(self._view.trajectory) if is_first else None,
                model=self._model,
                is_other_model=is_first and self._is_other_model,
            )
        )

    def _charge_aside(self, request: AuxRequest, completion_tokens: int) -> None:
        messages = request.messages or ()
        pieces = [
            self._sizes.piece(Piece(text=shown.text, n_tokens=self._tokens.of_chat(message)))
            for shown, message in zip(
                rendered_prompt(messages, self._settings.rules), messages, strict=True
            )
        ]
        cache = self._account.charge(pieces, aside=True)
        self._calls.append(
            ReplayedCall(
                kind=request.kind.value,
                cache=cache,
                completion_tokens=completion_tokens,
                model=self._model,
            )
        )

    def _said(self, index: int) -> Message | None:
        messages = self._recording.trajectory.messages
        if index < len(messages) and messages[index].role == "assistant":
            return messages[index]
        return None
