"""Shortens the outputs of one step per turn, a few turns back (docs/methods.md, Editing by rule).

Each turn considers the one step that has just become old enough. A shorter text is accepted only if
it saves enough to be worth breaking the cached prefix. Plan results and commands stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Count, Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.draws import ranks
from pipeline.views.policy import Ask, AuxRequest, CallKind, Policy
from pipeline.views.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_removed,
    newest_turn,
    placeholder_text,
)
from pipeline.views.thinning import thinned
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory, Turn, shown_content

REASON = "diet"
SHARED = "[Included in the shortened output before this one.]"

INSTRUCTION = """\
You shorten the outputs of one past step of a coding agent. Write what remains useful for the task,
given the steps after it: exact paths, names, values, error messages and the code that still
matters. Drop what is redundant, irrelevant or outdated. Answer with the shortened output only."""


@dataclass(frozen=True, kw_only=True)
class AgentDiet(Parameters):
    """Each turn compresses one step, a few turns back."""

    source: ClassVar[str] = "arXiv 2509.23586"
    example: ClassVar[Mapping[str, Any]] = {"min_tokens": 40, "min_saved_tokens": 10}

    METHOD: ClassVar[int] = 2

    kind: Science[Literal["agent_diet"]] = "agent_diet"
    mode: Science[Literal["model", "delete", "random"]] = "model"
    delay_turns: Science[Natural] = 2
    min_tokens: Science[Natural] = 500
    min_saved_tokens: Science[Natural] = 400
    max_ratio: Science[Amount] = 0.8
    """Accepted below this share of the original even if it saves less."""
    keep_rate: Science[Share] = 0.25
    """Share of the tokens that `mode: random` keeps."""
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return AgentDietPolicy(self, context)


class AgentDietPolicy:
    """Compresses the step `delay_turns` back: by the model, to nothing, or at random."""

    def __init__(self, spec: AgentDiet, context: PolicyContext) -> None:
        self._spec = spec
        self._seed = context.seed
        self._placeholder = context.placeholder
        self._counter = context.counter
        self._tokens = ShownTokens(context.counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the edits of the step that has just become old enough."""
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
                text = ask(request).content.strip()
                if not text:
                    return [shown_content(m, standing) for m in outputs]
                return [text, *[SHARED] * (len(outputs) - 1)]

    def _sampled(self, message: Message, standing: Edits) -> str:
        def chosen(n: int) -> set[int]:
            return set(
                ranks(self._seed, n, "diet", message.index)[: round(self._spec.keep_rate * n)]
            )

        return thinned(shown_content(message, standing), self._counter, chosen)

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
