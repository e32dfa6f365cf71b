"""The simulated agent's decision: one request in, one reply out, nothing remembered.

All choices come from the messages, the recipe and the request's seed, so equal requests get
equal replies. Durations, absolute paths and the wording of outputs never enter a choice, only
whether the needed lines are in view. Every view leads to an end within `TURN_CAP` answers as long
as one earlier answer or a summary is still shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pipeline.serving.sim import auxiliary
from pipeline.serving.sim.cleanup import chosen_ids
from pipeline.serving.sim.progress import progress_of
from pipeline.serving.sim.recipe import UNKNOWN_INSTANCE, RecipeBook
from pipeline.serving.sim.sight import read_of
from pipeline.serving.sim.speech import FENCE, Act, Reply, as_block, thinking
from pipeline.serving.sim.step import Move, Scene, next_move
from pipeline.serving.sim.view import Listed, View, view_of
from pipeline.views.focus import FOCUS_ARGUMENT

KEPT_OUTPUTS = 3
"""The newest outputs, which a compression leaves as they are."""
_PLAN_VERBS = ("set", "start", "complete", "add", "drop", "rename", "show")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What of a request the agent answers to."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: object = None
    seed: int = 0
    extra: Mapping[str, Any]
    """The request's body, for structured outputs."""

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools on offer."""
        return frozenset(str(t.get("function", {}).get("name")) for t in self.tools)

    @property
    def takes_focus(self) -> bool:
        """Whether the bash tool on offer takes a question about its output."""
        return any(
            FOCUS_ARGUMENT in tool.get("function", {}).get("parameters", {}).get("properties", {})
            for tool in self.tools
        )

    @property
    def forced_tool(self) -> str | None:
        """The tool that a named tool choice demands."""
        if isinstance(self.tool_choice, Mapping):
            return str(self.tool_choice.get("function", {}).get("name"))
        return None


def answer(question: Question, book: RecipeBook) -> Reply:
    """Return the simulated agent's reply."""
    view = view_of(question.messages)
    rng = Random(f"{question.seed}/{len(question.messages)}")
    is_text_mode = not question.tools and FENCE in view.opening
    if (not question.tools and not is_text_mode) or question.tool_choice == "none":
        return auxiliary.answer(view, question.extra, book, rng)
    if question.forced_tool == "prune_observations" or view.is_cleanup:
        return _cleanup(view, book, rng, is_text_mode=is_text_mode)
    return _step(view, question, book, rng, is_text_mode=is_text_mode)


def _cleanup(view: View, book: RecipeBook, rng: Random, *, is_text_mode: bool) -> Reply:
    recipe = book.find(view.opening) or UNKNOWN_INSTANCE
    place = progress_of(view, recipe, has_plan=True).place
    # The mark of the answer that completed the step may name the step or the one after it.
    next_step = place.step + 1 if place.check else max(1, place.step)
    ids = chosen_ids(view.listed, recipe, next_step=next_step, rng=rng)
    act = Act("prune_observations", {"ids": ids})
    reasoning = thinking(rng, f"{len(ids)} of {len(view.listed)} outputs can go")
    if is_text_mode:
        return Reply(content=f"THOUGHT: {reasoning}\n\n{as_block(act)}")
    return Reply(content="", reasoning=reasoning, acts=(act,))


def _step(
    view: View, question: Question, book: RecipeBook, rng: Random, *, is_text_mode: bool
) -> Reply:
    recipe = book.find(view.opening) or UNKNOWN_INSTANCE
    verbs = _plan_verbs(question, view, is_text_mode=is_text_mode)
    progress = progress_of(view, recipe, has_plan=bool(verbs))
    scene = Scene(
        recipe=recipe,
        view=view,
        progress=progress,
        rng=rng,
        plan_verbs=verbs,
        one_act=is_text_mode,
        # Text mode has no tool list; the placeholders say what can be done.
        may_recall=is_text_mode or "recall" in question.tool_names,
        says_done="task_done" in question.tool_names,
    )
    move = _with_compression(_with_pruning(next_move(scene), scene), scene, book)
    mark = move.place.mark(len(recipe.steps), progress.turn)
    reasoning = thinking(rng, move.about)
    if is_text_mode:
        thought = f"THOUGHT: {reasoning} {mark}"
        return Reply(content=f"{thought}\n\n{as_block(move.acts[0])}")
    said = f"{move.about[:1].upper()}{move.about[1:]}. {mark}"
    acts = _with_focus(move) if question.takes_focus else move.acts
    return Reply(content=said, reasoning=reasoning, acts=acts)


def _with_focus(move: Move) -> list[Act]:
    """Return the move's acts, reading commands with a question for the line pruner."""
    focus = {FOCUS_ARGUMENT: f"Which lines help to {move.about}?"}
    return [
        act._replace(arguments={**act.arguments, **focus})
        if act.tool == "bash" and read_of(str(act.arguments["command"])) is not None
        else act
        for act in move.acts
    ]


def _with_pruning(move: Move, scene: Scene) -> Move:
    """Return the move after what the agent was reminded of: that it may prune outputs."""
    if not scene.view.nudged:
        return move
    numbered = [
        Listed(observation_id=action.output_id, description=action.command)
        for action in scene.view.actions[:-1]
        if action.output_id is not None and action.output is not None
    ]
    place = scene.progress.place
    ids = chosen_ids(numbered, scene.recipe, next_step=max(1, place.step), rng=scene.rng)
    if not ids:
        return move
    prune = Act("prune_observations", {"ids": ids})
    return _first(prune, move, scene, "drop what is no longer needed")


def _with_compression(move: Move, scene: Scene, book: RecipeBook) -> Move:
    """Return the move after a compression of all but the newest outputs, where it may be made."""
    numbers = [a.output_id for a in scene.view.actions if a.output_id is not None]
    old = numbers[:-KEPT_OUTPUTS]
    if not scene.view.may_compress or len(old) < KEPT_OUTPUTS:
        return move
    text = auxiliary.summary("\n".join((scene.view.opening, *scene.view.texts)), book)
    arguments = {"first": old[0], "last": old[-1], "summary": text}
    return _first(Act("compress", arguments), move, scene, "sum up what is done")


def _first(act: Act, move: Move, scene: Scene, about: str) -> Move:
    """Return the move with an act before it, or that act alone where one is all that fits."""
    if scene.one_act:
        return Move(acts=(act,), place=scene.progress.place, about=about)
    return Move(acts=(act, *move.acts), place=move.place, about=move.about)


def _plan_verbs(question: Question, view: View, *, is_text_mode: bool) -> frozenset[str]:
    """Return the plan operations on offer; empty where there is no plan tool."""
    if is_text_mode:
        return frozenset(_PLAN_VERBS if "planctl" in view.opening else ())
    for tool in question.tools:
        function = tool.get("function", {})
        if function.get("name") == "planctl":
            properties = function.get("parameters", {}).get("properties", {})
            return frozenset(properties.get("action", {}).get("enum", _PLAN_VERBS))
    return frozenset()
