"""`plan_prune` whose choices wait in a queue until applying them costs less than it saves.

The queue is not stored: it is what the recorded answers chose, minus what has been pruned or used
since. So the policy stays a function of the trajectory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.accounting.break_even import Prices, QueuedEdit, asking_cost, best_cut
from pipeline.accounting.survival import mean_calls_to_come
from pipeline.arms.cleanup_turn import CleanupQuestion, CleanupTurn, cleanup_due
from pipeline.arms.parameters import PolicyContext
from pipeline.fields.bounds import Amount, Count, Share
from pipeline.fields.identity import Science, added_science
from pipeline.shell.lines import output_lines
from pipeline.shell.refetch import brings_back
from pipeline.views import prune_tool
from pipeline.views.plan_steps import steps_left
from pipeline.views.policy import Ask, Policy
from pipeline.views.references import refers
from pipeline.views.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_cold,
    live_outputs,
    newest_turn,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn

REASON = "prune"


@dataclass(frozen=True, kw_only=True)
class PlanPruneCached(CleanupTurn):
    """`plan_prune` whose choices wait until applying them costs less than keeping them."""

    source: ClassVar[str] = "ours"
    example: ClassVar[Mapping[str, Any]] = {
        "cached_price": 0.9,
        "output_price": 0.1,
        "first_output_tokens": 10.0,
    }

    METHOD: ClassVar[int] = 2

    kind: Science[Literal["plan_prune_cached"]] = "plan_prune_cached"
    input_price: Science[Amount] = 1.0
    cached_price: Science[Amount] = 0.1
    output_price: Science[Amount] = 5.0
    """Prices per token; only their ratios matter."""
    write_price: Science[Amount | None] = added_science(None)
    """Of an input token that enters the cache; None: the input price."""
    ttl_s: Science[Amount | None] = added_science(None)
    """Idle seconds after which the prefix is cold and all that is queued is applied."""
    block_tokens: Science[Count] = 16
    """The server's cache block: a cut re-bills from the last block boundary before it."""
    calls_to_come: Science[Literal["pilot", "so_far", "plan"]] = "so_far"
    pilot_calls: Science[tuple[int, ...]] = ()
    """Calls of each pilot run, for `calls_to_come: pilot`."""
    pilot_capped: Science[tuple[bool, ...]] = ()
    """Whether that pilot run ended at a cap; such runs are censored, not finished."""
    first_output_tokens: Science[Amount] = 300.0
    """Assumed output of a cleanup until one has been seen."""
    apply_at_context_share: Science[Share] = 0.9
    """Apply everything queued once the view holds this share of the window."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return PlanPruneCachedPolicy(self, context)


class PlanPruneCachedPolicy:
    """Asks when an answer could pay, and applies what was chosen when it does."""

    def __init__(self, spec: PlanPruneCached, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._tokens = ShownTokens(context.counter)
        self._uses = _Uses()
        self._limit = spec.apply_at_context_share * context.context_length
        self._prices = Prices(
            input=spec.input_price,
            cached=spec.cached_price,
            output=spec.output_price,
            write=spec.write_price,
        )
        self._question = CleanupQuestion(spec, context, self._tokens)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the queued edits that pay now; all of them before the window is full."""
        turn = newest_turn(trajectory)
        if turn is None:
            return ()
        live = live_outputs(trajectory, standing, protect_last_turns=self._spec.protect_last_turns)
        position, context = self._positions(trajectory, standing)
        edits = {k: self._queued_edit(k, m, position, standing) for k, m in live.items()}
        edits = {k: e for k, e in edits.items() if e.saved_tokens > 0}
        sent = position[turn.observations[0].index]
        waiting = self._queue(trajectory, live)
        if waiting and is_cold(trajectory, self._spec.ttl_s):
            # All is computed again anyway, so the cut is free; asking first would warm the prefix.
            return self._applied(sorted(waiting & edits.keys()), live)
        calls = self._calls_to_come(trajectory, context)
        if cleanup_due(self._spec, turn, trajectory) and self._worth_asking(
            trajectory, standing, live, edits, sent, context, calls
        ):
            askable = {k: m for k, m in live.items() if k in edits and k not in waiting}
            if askable:
                choice = self._question.ask(trajectory, standing, askable, ask)
                waiting |= set(choice.chosen)
                # The question has just sent the newest results too.
                sent = context
        queued = [edits[k] for k in sorted(waiting) if k in edits]
        return self._applied(self._pays(queued, sent, context, calls), live)

    def _applied(self, numbers: Sequence[int], live: Mapping[int, Message]) -> list[Edit]:
        return [
            content_edit(live[k], placeholder_text(self._placeholder, live[k], k), REASON)
            for k in numbers
        ]

    def _pays(
        self, queued: Sequence[QueuedEdit], sent: int, context: int, calls: float
    ) -> tuple[int, ...]:
        if context >= self._limit:
            return tuple(q.number for q in queued)
        cut = best_cut(
            queued,
            sent_tokens=sent,
            calls_to_come=calls,
            prices=self._prices,
            block_tokens=self._spec.block_tokens,
        )
        return cut.numbers if cut is not None and cut.gain > 0 else ()

    def _positions(self, trajectory: Trajectory, standing: Edits) -> tuple[dict[int, int], int]:
        """Return the shown tokens before each message, and those of the whole view."""
        before: dict[int, int] = {}
        total = 0
        for message in trajectory.messages:
            inserted = standing.get((message.index, Part.INSERTED))
            total += 0 if inserted is None else self._tokens.of_text(inserted.text)
            before[message.index] = total
            total += self._tokens.of_message(message, standing)
        return before, total

    def _queued_edit(
        self, number: int, message: Message, position: Mapping[int, int], standing: Edits
    ) -> QueuedEdit:
        text = placeholder_text(self._placeholder, message, number)
        return QueuedEdit(
            number=number,
            position=position[message.index],
            saved_tokens=self._tokens.of_content(message, standing) - self._tokens.of_text(text),
        )

    def _queue(self, trajectory: Trajectory, live: Mapping[int, Message]) -> set[int]:
        """Return the live outputs that an earlier answer chose and nothing has used since."""
        waiting: dict[int, int] = {}
        here = len(trajectory.messages)
        for decision in trajectory.decisions:
            if decision.kind == "cleanup" and decision.message_index < here:
                answer = prune_tool.prune_answer(decision.content, decision.tool_calls)
                for number in answer.ids:
                    if number in live and live[number].index < decision.message_index:
                        waiting[number] = decision.message_index
        turns = acted_turns(trajectory)
        return {
            number
            for number, since in waiting.items()
            if not self._uses.since(turns, live[number], since)
        }

    def _worth_asking(
        self,
        trajectory: Trajectory,
        standing: Edits,
        live: Mapping[int, Message],
        edits: Mapping[int, QueuedEdit],
        sent: int,
        context: int,
        calls: float,
    ) -> bool:
        """Return whether pruning everything prunable would gain more than the question costs."""
        most = best_cut(
            list(edits.values()),
            sent_tokens=sent,
            calls_to_come=calls,
            prices=self._prices,
            block_tokens=self._spec.block_tokens,
        )
        if most is None:
            return False
        prompt = self._question.prompt(trajectory, standing, live)
        cost = asking_cost(
            self._prices,
            context_tokens=context,
            listing_tokens=self._tokens.of_text(prompt),
            answer_tokens=self._mean_answer(trajectory),
        )
        return most.gain > cost

    def _mean_answer(self, trajectory: Trajectory) -> float:
        written = [
            d.completion_tokens
            for d in trajectory.decisions
            if d.kind == "cleanup" and d.message_index < len(trajectory.messages)
        ]
        return sum(written) / len(written) if written else self._spec.first_output_tokens

    def _calls_to_come(self, trajectory: Trajectory, context: int) -> float:
        so_far = len(trajectory.turns)
        horizon = self._calls_until_full(context, so_far)
        match self._spec.calls_to_come:
            case "so_far":
                return min(so_far, horizon)
            case "pilot":
                return mean_calls_to_come(
                    self._spec.pilot_calls,
                    self._spec.pilot_capped,
                    so_far=so_far,
                    horizon=int(horizon),
                )
            case "plan":
                left = steps_left(trajectory) or 0
                done = sum(e.action == "complete" for e in trajectory.plan_events)
                return min(left * so_far / max(1, done), horizon)

    def _calls_until_full(self, context: int, so_far: int) -> float:
        """Return after how many calls the window forces a rewrite, at the growth so far."""
        growth = context / max(1, so_far)
        return max(0.0, self._limit - context) / growth if growth > 0 else float(10**6)


class _Uses:
    """Whether queued outputs were used since they were chosen; each turn is examined once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[Turn, bool]] = {}

    def since(self, turns: Sequence[Turn], output: Message, since: int) -> bool:
        """Return whether an output was run again, shown again, or quoted after `since`."""
        known = self._seen.get((output.index, since))
        new: list[Turn] = []
        for turn in reversed(turns):
            if turn.assistant.index < since:
                known = None
                break
            if known is not None and turn is known[0]:
                break
            new.append(turn)
        else:
            known = None
        used = (known is not None and known[1]) or any(_uses(turn, output) for turn in new)
        if turns:
            self._seen[output.index, since] = (turns[-1], used)
        return used


def _uses(turn: Turn, output: Message) -> bool:
    shown = output_lines(output.command, output.printed)
    for result in turn.observations:
        if result.command == output.command:
            return True
        if result.is_prunable and brings_back(result.command, result.printed, shown):
            return True
    return refers(turn, output)
