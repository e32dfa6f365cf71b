"""Answers to requests that are no step of the work: summaries, selections, short texts.

Recognised by the lack of tools. The summary carries the agent's mark, so that the work can go on
from it once the turns are gone.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from pipeline.serving.sim.progress import Place, marks_in
from pipeline.serving.sim.recipe import UNKNOWN_INSTANCE, Recipe, RecipeBook
from pipeline.serving.sim.speech import Reply, thinking
from pipeline.serving.sim.view import View

_NUMBERED_LINE = re.compile(r"^\s*(\d+)[\t:|]", re.MULTILINE)


def answer(view: View, body: Mapping[str, Any], book: RecipeBook, rng: Random) -> Reply:
    """Return the reply to a request without tools."""
    outputs = body.get("structured_outputs")
    choices: Sequence[str] = outputs.get("choice", ()) if isinstance(outputs, Mapping) else ()
    if choices:
        return Reply(content=rng.choice(choices))
    everything = "\n".join((view.opening, *view.texts))
    if "summar" in everything.lower():
        return Reply(content=summary(everything, book), reasoning=thinking(rng, "sum up"))
    if "keep" in everything and (numbers := _NUMBERED_LINE.findall(view.last or everything)):
        return Reply(content=_kept(numbers, rng))
    return Reply(content=_shortened(view.last or view.opening))


def summary(everything: str, book: RecipeBook) -> str:
    """Return a summary of a history, given as one text, from which the work can go on."""
    recipe = book.find(everything) or UNKNOWN_INSTANCE
    place, turn = marks_in((everything,))
    number = place.step
    lines = [
        "USER CONTEXT: " + (recipe.summary or "the task as stated above"),
        "COMPLETED: " + ("; ".join(_titles(recipe, 1, number)) or "nothing yet"),
        "PENDING: " + ("; ".join(_titles(recipe, number, len(recipe.steps) + 1)) or "submit"),
        "CURRENT STATE: " + place.mark(len(recipe.steps), turn),
        "CODE STATE: edited " + (", ".join(_edited(recipe, place)) or "nothing"),
        "VERSION CONTROL: changes are not committed",
    ]
    return "\n".join(lines)


def _titles(recipe: Recipe, start: int, stop: int) -> list[str]:
    numbers = range(max(1, start), min(stop, len(recipe.steps) + 1))
    return [f"step {n} ({recipe.steps[n - 1].title})" for n in numbers]


def _edited(recipe: Recipe, place: Place) -> list[str]:
    done = recipe.steps[: place.step if place.edit else max(0, place.step - 1)]
    return sorted({step.edit.path for step in done if step.edit is not None})


def _kept(numbers: Sequence[str], rng: Random) -> str:
    """Return about half of the numbered lines, as ranges."""
    blocks = [numbers[i : i + 10] for i in range(0, len(numbers), 10)]
    kept = [block for block in blocks if rng.random() < 0.5] or blocks[:1]
    return ", ".join(f"{block[0]}-{block[-1]}" for block in kept)


def _shortened(text: str) -> str:
    """Return every fourth line of a text; `ok` for a text too short to shorten."""
    lines = text.splitlines()
    return "\n".join(lines[::4]) if len(lines) > 3 else "ok"
