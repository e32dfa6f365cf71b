"""Trajectory reduction of one step at a time, a few turns back (METHODS 2, `agent_diet`).

Every turn looks at the one step that has just become old enough. A rewriting is taken only when it
is worth the cache it breaks. Plan results stay; commands stay.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.context.cleanup import answer_to
from pipeline.context.deletion import units_of
from pipeline.context.draws import ranks
from pipeline.context.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_removed,
    newest_turn,
    placeholder_text,
)
from pipeline.protocols import Ask, AuxRequest, CallKind, TokenCounter
from pipeline.records.trajectory import (
    Edit,
    Edits,
    Message,
    Trajectory,
    Turn,
    shown_content,
)
from pipeline.spec.policy import AgentDiet

REASON = "diet"
SHARED = "[Included in the shortened output before this one.]"

INSTRUCTION = """\
You shorten the outputs of one past step of a coding agent. Write what remains useful for the task,
given the steps after it: exact paths, names, values, error messages and the code that still
matters. Drop what is redundant, irrelevant or outdated. Answer with the shortened output only."""


class AgentDietPolicy:
    """Compresses the step `delay_turns` back: by the model, to nothing, or at random."""

    def __init__(
        self, spec: AgentDiet, *, seed: int, placeholder: str | None, counter: TokenCounter
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._placeholder = placeholder
        self._tokens = ShownTokens(counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits of the one step whose turn it is."""
        turns = acted_turns(trajectory)
        number = len(turns) - 1 - self._spec.delay_turns
        if number < 0 or newest_turn(trajectory) is None:
            return ()
        outputs = [
            m for m in turns[number].observations if m.is_prunable and not is_removed(m, standing)
        ]
        before = sum(self._tokens.of_content(m, standing) for m in outputs)
        if not outputs or before < self._spec.min_tokens:
            return ()
        texts = self._shorter(outputs, turns[number:], trajectory, standing, ask)
        after = sum(self._tokens.of_text(text) for text in texts)
        if before - after < self._spec.min_saved_tokens and after >= self._spec.max_ratio * before:
            return ()
        return [content_edit(m, text, REASON) for m, text in zip(outputs, texts, strict=True)]

    def _shorter(
        self,
        outputs: Sequence[Message],
        turns: Sequence[Turn],
        trajectory: Trajectory,
        standing: Edits,
        ask: Ask,
    ) -> list[str]:
        match self._spec.mode:
            case "delete":
                return [placeholder_text(self._placeholder, m) for m in outputs]
            case "random":
                return [self._sampled(m, standing) for m in outputs]
            case "model":
                request = self._request(outputs, turns, trajectory, standing)
                text = answer_to(request, trajectory, ask).content.strip()
                if not text:
                    return [shown_content(m, standing) for m in outputs]
                return [text, *[SHARED] * (len(outputs) - 1)]

    def _sampled(self, message: Message, standing: Edits) -> str:
        units = units_of(shown_content(message, standing))
        kept = round(self._spec.keep_rate * len(units))
        chosen = set(ranks(self._seed, len(units), "diet", message.index)[:kept])
        return "".join(unit for place, unit in enumerate(units) if place in chosen)

    def _request(
        self,
        outputs: Sequence[Message],
        turns: Sequence[Turn],
        trajectory: Trajectory,
        standing: Edits,
    ) -> AuxRequest:
        parts = [f"Task:\n{trajectory.messages[1].content}"]
        parts += [
            f"Output of `{m.command or m.tool}` in the step to shorten:\n"
            + shown_content(m, standing)
            for m in outputs
        ]
        for turn in turns[1:]:
            said = shown_content(turn.assistant, standing)
            commands = "\n".join(f"$ {m.command or m.tool}" for m in turn.observations)
            parts.append(f"A later step:\n{said}\n{commands}")
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": "\n\n".join(parts)},
        ]
        return AuxRequest(
            kind=CallKind.PRUNE,
            messages=messages,
            temperature=self._spec.temperature,
            max_tokens=self._spec.max_tokens,
        )
