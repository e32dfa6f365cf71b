"""Plan-guided pruning, the main arm (METHODS 1), with the ablations that are its parameters.

After a turn that completed a plan step the model is asked once which earlier outputs it no longer
needs; those become a placeholder. `sham_cleanup` asks the same and prunes nothing. When to ask, who
picks and what becomes of the picked are parameters; the question itself is `cleanup`.
"""

from collections.abc import Mapping, Sequence

from pipeline.context import prune_tool
from pipeline.context.cleanup import (
    CleanupForm,
    PruneChoice,
    answer_to,
    cleanup_prompt,
    cleanup_request,
    listing,
    prune_choice,
)
from pipeline.context.draws import uniform
from pipeline.context.plan_steps import completed_in, step_of, step_spans, steps_left
from pipeline.context.shown import (
    ShownTokens,
    acted_turns,
    changed,
    content_edit,
    is_removed,
    live_outputs,
    newest_turn,
    output_ids,
    placeholder_text,
    reasoning_edit,
)
from pipeline.protocols import Ask, TokenCounter
from pipeline.records.trajectory import Edit, Edits, Message, Trajectory, Turn, merged
from pipeline.spec.policy import PlanPrune, PlanPruneCached

REASON = "prune"


class PlanPrunePolicy:
    """Asks at the moments of the arm and prunes what the answer names."""

    def __init__(
        self,
        spec: PlanPrune,
        *,
        placeholder: str | None,
        seed: int,
        counter: TokenCounter,
        text_mode: bool = False,
    ) -> None:
        self._spec = spec
        self._placeholder = placeholder
        self._seed = seed
        self._tokens = ShownTokens(counter)
        self._form = CleanupForm.of(spec, text_mode=text_mode)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits of this moment: none unless a cleanup is due."""
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
            offer=_recall_offer(self._form.text_mode) if self._spec.recall else "",
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
            return asked(trajectory, standing, live, self._form, self._tokens, ask)
        if self._spec.choose == "random":
            chosen = self._at_random(live, standing)
        else:
            spans, done = step_spans(trajectory), completed_in(turn, trajectory)
            chosen = [k for k, m in live.items() if step_of(m, spans) in done]
        return PruneChoice(chosen=tuple(sorted(chosen)), ignored=(), note="")

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
        turns = acted_turns(trajectory)
        spans = step_spans(trajectory)
        current = next((s.plan_step for s in spans if s.last is None), None)
        old = turns[: max(0, len(turns) - self._spec.protect_last_turns)]
        return [
            reasoning_edit(turn.assistant, REASON)
            for turn in old
            if turn.assistant.reasoning
            and (step := step_of(turn.assistant, spans)) is not None
            and step != current
        ]


def cleanup_due(spec: PlanPrune | PlanPruneCached, turn: Turn, trajectory: Trajectory) -> bool:
    """Return whether the turn that just ended calls for a cleanup.

    Completing the plan's last step does not: nothing is left to save. A turn that submitted ends
    the run before any policy is asked.
    """
    if spec.trigger == "every_k":
        return len(acted_turns(trajectory)) % spec.every_k == 0
    return bool(completed_in(turn, trajectory)) and steps_left(trajectory) != 0


def asked(
    trajectory: Trajectory,
    standing: Edits,
    live: Mapping[int, Message],
    form: CleanupForm,
    tokens: ShownTokens,
    ask: Ask,
) -> PruneChoice:
    """Return what the model wants pruned of `live`, by one cleanup call."""
    spans = step_spans(trajectory) if form.plan_step_column else None
    outputs = listing(live, standing, tokens=tokens, spans=spans)
    prompt = cleanup_prompt(outputs, text_mode=form.text_mode)
    answer = answer_to(cleanup_request(trajectory, standing, prompt, form), trajectory, ask)
    return judged(
        prune_tool.prune_answer(answer.content, answer.tool_calls), trajectory, standing, live
    )


def judged(
    answer: prune_tool.PruneAnswer,
    trajectory: Trajectory,
    standing: Edits,
    live: Mapping[int, Message],
) -> PruneChoice:
    """Return the answer with what cannot be done set apart."""
    known = output_ids(trajectory)
    removed = frozenset(k for k, m in known.items() if is_removed(m, standing))
    return prune_choice(answer, live, known, removed)


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
        offer: how each output may be had again, `{id}` standing for its number.
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
            choice = judged(answer, trajectory, merged(standing, edits), live)
            edits += pruned(choice, live, placeholder)
    return edits


def _recall_offer(text_mode: bool) -> str:
    """Return what a placeholder says of the tool `recall`, as the model has to write it."""
    return f" {'`recall {id}`' if text_mode else 'recall(id={id})'} shows it again."
