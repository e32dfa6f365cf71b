"""Plan-guided pruning, the main arm, with the ablations that are its parameters.

See docs/methods.md, Plan-guided pruning.

After a turn that completed a plan step the model is asked once which earlier outputs it no longer
needs; those become a placeholder. `sham_cleanup` asks the same and prunes nothing. When to
ask, who chooses and what happens to the chosen outputs are parameters; the question is in
`cleanup_turn`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.cleanup_turn import (
    CleanupQuestion,
    CleanupTurn,
    PruneChoice,
    choice_of,
    cleanup_due,
)
from pipeline.arms.parameters import PolicyContext
from pipeline.fields.bounds import Share
from pipeline.fields.identity import Science
from pipeline.views import prune_tool, recall_tool
from pipeline.views.draws import uniform
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.plan_steps import completed_in, step_of, step_spans
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    ShownTokens,
    changed,
    content_edit,
    live_outputs,
    newest_turn,
    older_turns,
    placeholder_text,
    reasoning_edit,
)
from pipeline.views.thoughts import thought_edit
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory, Turn, merged

REASON = "prune"


@dataclass(frozen=True, kw_only=True)
class PlanPrune(CleanupTurn):
    """A cleanup turn whenever a plan step is completed, and its ablations.

    See docs/methods.md, Plan-guided pruning.
    """

    source: ClassVar[str] = "the founding proposal, plan-guided history pruning, 2026-10-10"
    tuned: ClassVar[str | None] = "random_rate"
    tuned_with: ClassVar[str] = "choose: random"

    METHOD: ClassVar[int] = 2

    kind: Science[Literal["plan_prune"]] = "plan_prune"
    choose: Science[Literal["model", "finished_step", "random"]] = "model"
    """Who chooses: the model when asked, the plan (all of the finished step), or chance."""
    random_rate: Science[Share] = 0.5
    """Share of the prunable tokens that `choose: random` prunes at each moment."""
    apply: Science[bool] = True
    """False: asked and recorded, nothing pruned (`sham_cleanup`)."""
    prune_reasoning: Science[bool] = False
    """Also drop the reasoning of the turns of finished plan steps."""
    keep_note: Science[bool] = False
    """Put the cleanup's note into the placeholder of what it pruned."""
    recall: Science[bool] = False
    """Offer the tool `recall`, which shows a pruned output again."""
    honour_anytime: Science[bool] = False
    """Let `prune_observations` act outside a cleanup turn too, instead of an error."""

    @property
    def budget_parameter(self) -> str | None:
        """The rate, where chance chooses."""
        return self.tuned if self.choose == "random" else None

    @property
    def for_example(self) -> Mapping[str, Any]:
        """A cleanup every four turns, where turns are counted."""
        return {"every_k": 4} if self.trigger == "every_k" else {}

    @property
    def prunes(self) -> bool:
        """False for an arm that only asks."""
        return self.apply

    @property
    def has_cleanup(self) -> bool:
        """True where the model is asked, and not the plan or chance."""
        return self.choose == "model"

    @property
    def acts_anytime(self) -> bool:
        """True where ordinary turns may prune too."""
        return self.honour_anytime

    @property
    def keeps_note(self) -> bool:
        """True where a note of the cleanup stays in the view."""
        return self.keep_note

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tool of the cleanup turn, and the one that takes a pruning back."""
        return (*super().tools, *([recall_tool.recall_tool()] if self.recall else []))

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return PlanPrunePolicy(self, context)


class PlanPrunePolicy:
    """Asks when a cleanup is due and prunes what the answer names."""

    def __init__(self, spec: PlanPrune, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._seed = context.seed
        self._tokens = ShownTokens(context.counter)
        self._question = CleanupQuestion(spec, context, self._tokens)
        self._offer = _recall_offer(context.text_mode) if spec.recall else ""

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the new edits; none unless a cleanup is due."""
        turn = newest_turn(trajectory)
        if turn is None:
            return ()
        edits: list[Edit] = []
        if self._spec.honour_anytime:
            edits += asked_in_turn(
                turn, trajectory, standing, self._placeholder, self._spec.protect_last_turns
            )
        if cleanup_due(self._spec, turn, trajectory):
            edits += self._cleanup(turn, trajectory, merged(standing, edits), ask)
        return changed(edits, standing)

    def _cleanup(self, turn: Turn, trajectory: Trajectory, standing: Edits, ask: Ask) -> list[Edit]:
        live = self._worth_asking(trajectory, standing)
        choice = self._choice(turn, trajectory, standing, live, ask)
        if choice is None or not self._spec.apply:
            return []
        edits = pruned(
            choice,
            live,
            self._placeholder,
            note=choice.note if self._spec.keep_note else "",
            offer=self._offer,
        )
        if self._spec.prune_reasoning:
            edits += self._reasoning_of_finished(trajectory)
        return edits

    def _worth_asking(self, trajectory: Trajectory, standing: Edits) -> dict[int, Message]:
        """Return the live outputs that a placeholder would make shorter."""
        live = live_outputs(trajectory, standing, protect_last_turns=self._spec.protect_last_turns)
        floor = self._tokens.of_text(placeholder_text(self._placeholder, trajectory.messages[-1]))
        return {k: m for k, m in live.items() if self._tokens.of_content(m, standing) > floor}

    def _choice(
        self,
        turn: Turn,
        trajectory: Trajectory,
        standing: Edits,
        live: Mapping[int, Message],
        ask: Ask,
    ) -> PruneChoice | None:
        if not live:
            return None
        if self._spec.choose == "model":
            return self._question.ask(trajectory, standing, live, ask)
        if self._spec.choose == "random":
            chosen = self._at_random(live, standing)
        else:
            spans, done = step_spans(trajectory), completed_in(turn, trajectory)
            chosen = [k for k, m in live.items() if step_of(m, spans) in done]
        return PruneChoice(chosen=tuple(sorted(chosen)))

    def _at_random(self, live: Mapping[int, Message], standing: Edits) -> list[int]:
        """Return outputs in random order up to the rate's share of the live tokens."""
        size = {k: self._tokens.of_content(m, standing) for k, m in live.items()}
        wanted = self._spec.random_rate * sum(size.values())
        chosen, removed = [], 0.0
        for number in sorted(live, key=lambda k: uniform(self._seed, "prune", k)):
            if removed + size[number] / 2 > wanted:
                continue
            chosen.append(number)
            removed += size[number]
        return chosen

    def _reasoning_of_finished(self, trajectory: Trajectory) -> list[Edit]:
        spans = step_spans(trajectory)
        current = next((s.plan_step for s in spans if s.last is None), None)
        old = older_turns(trajectory, self._spec.protect_last_turns)
        finished = [
            turn.assistant
            for turn in old
            if (step := step_of(turn.assistant, spans)) is not None and step != current
        ]
        fields = [reasoning_edit(message, REASON) for message in finished if message.reasoning]
        thoughts = [thought_edit(message, REASON) for message in finished]
        return [*fields, *(edit for edit in thoughts if edit is not None)]


def pruned(
    choice: PruneChoice,
    live: Mapping[int, Message],
    placeholder: str | None,
    *,
    note: str = "",
    offer: str = "",
) -> list[Edit]:
    """Return the edits that carry a choice out; a note goes to the newest pruned output.

    Args:
        choice: what to prune.
        live: the outputs still in the view, by number.
        placeholder: the arm's wording, None for the policy's own.
        note: what the model wants kept of them.
        offer: how to see an output again; `{id}` stands for its number.
    """
    edits = []
    for number in choice.chosen:
        text = placeholder_text(placeholder, live[number], number)
        text += offer.replace("{id}", str(number))
        if note and number == choice.chosen[-1]:
            text += f" Note: {note}"
        edits.append(content_edit(live[number], text, REASON))
    return edits


def asked_in_turn(
    turn: Turn,
    trajectory: Trajectory,
    standing: Edits,
    placeholder: str | None,
    protect_last_turns: int,
) -> list[Edit]:
    """Return the edits that calls of `prune_observations` in an ordinary turn ask for."""
    live = live_outputs(trajectory, standing, protect_last_turns=protect_last_turns)
    edits: list[Edit] = []
    for result in turn.observations:
        if result.tool == prune_tool.NAME and result.command:
            answer = prune_tool.answer_from_command(result.command)
            edits += pruned(choice_of(answer, live), live, placeholder)
    return edits


def _recall_offer(text_mode: bool) -> str:
    """Return what a placeholder says about the tool `recall`, as the model has to call it."""
    return f" {'`recall {id}`' if text_mode else 'recall(id={id})'} shows it again."
