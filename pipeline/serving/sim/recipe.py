"""Recipes: what the simulated agent would do for an instance if it did everything right.

A recipe says which lines must be in view before an edit, never what was already done: that
comes from the conversation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Need:
    """Lines of a file, 1-based and inclusive, that a step must see."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class FileEdit:
    """A replacement of one text by another in one file."""

    path: str
    old: str
    """Empty: `new` is appended to the file."""
    new: str


@dataclass(frozen=True, kw_only=True)
class RecipeStep:
    """One plan step."""

    title: str
    explore: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    edit: FileEdit | None = None
    verify: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One instance as the simulated agent knows it."""

    instance_id: str
    summary: str
    """Occurs word for word in the problem statement; how the instance is recognised."""
    steps: tuple[RecipeStep, ...]
    solvable: bool
    wrong: FileEdit | None
    """What is done instead of the decisive edit when the agent gets it wrong."""
    skill: float
    """Probability of the right decisive edit, or answer, where the instance is solvable."""
    answers: tuple[str, str] | None = None
    """The right answer and a wrong one, where the task is a question."""

    @property
    def decisive_step(self) -> int | None:
        """Index of the step whose edit may go wrong: the one `wrong` rivals, else the last."""
        edits = [i for i, step in enumerate(self.steps) if step.edit is not None]
        wrong = self.wrong
        for i in edits:
            if wrong is not None and _rivals(wrong, self.steps[i].edit):
                return i
        return edits[-1] if edits else None


def _rivals(wrong: FileEdit, edit: FileEdit | None) -> bool:
    """Return whether `wrong` changes the same text as `edit`."""
    if edit is None or edit.path != wrong.path or not (edit.old and wrong.old):
        return False
    return wrong.old in edit.old or edit.old in wrong.old


UNKNOWN_INSTANCE = Recipe(
    instance_id="",
    summary="",
    steps=(
        RecipeStep(
            title="Look around the repository",
            explore=(
                "git log --oneline -5",
                "ls",
                "git ls-files | head -50",
                "cat README* | head -40",
            ),
        ),
        RecipeStep(
            title="Look for the code in question",
            explore=("git status --short", "git ls-files | wc -l", "git grep -n TODO | head -20"),
        ),
    ),
    solvable=False,
    wrong=None,
    skill=0.0,
)
"""What is done about a task that no recipe describes: a look around, and an empty patch."""


class RecipeBook:
    """All recipes, found by the text of the task."""

    def __init__(self, recipes: Sequence[Recipe] = ()) -> None:
        self._recipes = sorted(recipes, key=lambda r: -len(r.summary))
        self._found: dict[int, Recipe | None] = {}

    def find(self, text: str) -> Recipe | None:
        """Return the recipe whose summary, or else whose id, occurs in `text`."""
        key = hash(text)
        if key not in self._found:
            if len(self._found) > 4096:
                self._found.clear()
            self._found[key] = self._search(text)
        return self._found[key]

    def _search(self, text: str) -> Recipe | None:
        for recipe in self._recipes:
            if recipe.summary and recipe.summary in text:
                return recipe
        return next((r for r in self._recipes if r.instance_id in text), None)


def load_recipes(path: Path) -> RecipeBook:
    """Return the recipes of a JSON file `{instance_id: recipe}`.

    Raises:
        ValueError: the file is no such JSON; the message names the file and the instance.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    recipes = []
    for instance_id, row in rows.items():
        try:
            recipes.append(_recipe(instance_id, row))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: the recipe of {instance_id} is broken: {error!r}") from error
    return RecipeBook(recipes)


def _recipe(instance_id: str, row: Mapping[str, Any]) -> Recipe:
    return Recipe(
        instance_id=instance_id,
        summary=row["summary"],
        steps=tuple(_step(step) for step in row["steps"]),
        solvable=bool(row["solvable"]),
        wrong=_edit(row.get("wrong")),
        skill=float(row["skill"]),
        answers=None if row.get("answers") is None else (row["answers"][0], row["answers"][1]),
    )


def _step(row: Mapping[str, Any]) -> RecipeStep:
    return RecipeStep(
        title=row["title"],
        explore=tuple(row.get("explore", ())),
        needs=tuple(
            Need(path=n["path"], start=int(n["start"]), end=int(n["end"]))
            for n in row.get("needs", ())
        ),
        edit=_edit(row.get("edit")),
        verify=tuple(row.get("verify", ())),
    )


def _edit(row: Mapping[str, str] | None) -> FileEdit | None:
    return None if row is None else FileEdit(path=row["path"], old=row["old"], new=row["new"])
