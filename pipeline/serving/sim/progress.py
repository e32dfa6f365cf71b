"""How far the work is, told from the view alone.

Two kinds of evidence: the actions still in view, replayed against the recipe, and the short mark
that the simulated agent writes into each answer and each summary, as an agent says "now step 2".
The farthest place that any evidence supports is taken. Where both are gone, the agent starts
over, as it would in life.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from pipeline.serving.sim.recipe import Recipe
from pipeline.serving.sim.sight import read_of
from pipeline.serving.sim.view import Action, View

_MARK = re.compile(r"\[step (\d+)/\d+, look (\d+), edit (\d+), check (\d+), turn (\d+)\]")
EDIT_MARK = "# plan step {number}: "
"""Comment in every edit command; how an edit is recognised later."""
_ACTIVE = re.compile(r"^\[>\] (\d+)\.", re.MULTILINE)
"""The active step in a plan tool's result."""
_EDIT_MARK = re.compile(r"# plan step (\d+): ")

DIFF, SHOW, SUBMIT = (
    "git diff > patch.txt",
    "cat patch.txt",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt",
)
SUBMIT_ANSWER = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat /tmp/answer.txt"
CLOSING = (DIFF, SHOW, SUBMIT)
"""The commands that end a run, in order (mini-SWE-agent's protocol)."""


class Place(NamedTuple):
    """A position in the work. Places are ordered."""

    step: int
    """Plan step, from 1; 0 before the plan, one more than the recipe's steps at the review."""
    look: int = 0
    """Exploring commands passed."""
    edit: int = 0
    """1 once the step's edit was made or found unnecessary."""
    check: int = 0
    """Verifying commands passed; one more than there are once the step was completed."""

    def mark(self, n_steps: int, turn: int) -> str:
        """Return the mark that `Progress` reads back."""
        return (
            f"[step {self.step}/{n_steps}, look {self.look}, edit {self.edit}, "
            f"check {self.check}, turn {turn}]"
        )


class Progress(NamedTuple):
    """What the view says about how far the work is."""

    place: Place
    turn: int
    """The number of the answer to be given now, from 1."""
    since_step: tuple[Action, ...]
    """The visible actions since the current step began."""


def progress_of(view: View, recipe: Recipe, *, has_plan: bool) -> Progress:
    """Return how far the work in `view` is."""
    marked, turn = marks_in(view.texts)
    acted, began = _replayed(view.actions, recipe, has_plan=has_plan)
    place = max(marked, acted)
    since = view.actions[began:] if acted.step == place.step else view.actions[-8:]
    return Progress(place, max(turn, view.n_turns) + 1, tuple(since))


def marks_in(texts: Iterable[str]) -> tuple[Place, int]:
    """Return the farthest place and the latest turn that are marked in any of `texts`."""
    place, latest = Place(0), 0
    for text in texts:
        for mark in _MARK.finditer(text):
            step, look, edit, check, turn = (int(group) for group in mark.groups())
            place = max(place, Place(step, look, edit, check))
            latest = max(latest, turn)
    return place, latest


def _replayed(actions: tuple[Action, ...], recipe: Recipe, *, has_plan: bool) -> tuple[Place, int]:
    """Return the place that the actions lead to, and which action began its step."""
    place, began = Place(0), 0
    for i, action in enumerate(actions):
        after = _after(place, action, recipe, has_plan=has_plan)
        if after.step != place.step:
            began = i
        place = max(place, after)
    return place, began


def _after(place: Place, action: Action, recipe: Recipe, *, has_plan: bool) -> Place:
    if action.tool == "planctl":
        return _after_planctl(place, action, recipe)
    if action.tool != "bash":
        return place
    edit = _EDIT_MARK.search(action.command)
    if edit:
        step = int(edit.group(1))
        look = len(recipe.steps[step - 1].explore) if step <= len(recipe.steps) else 0
        return max(place, Place(step, look, 1, 0))
    if action.command in CLOSING:
        return max(place, Place(len(recipe.steps) + 1, CLOSING.index(action.command) + 1))
    for step in _possible_steps(place, recipe, has_plan=has_plan):
        reached = _after_command(
            place if step == place.step else Place(step), action.command, recipe
        )
        if reached is not None:
            return reached
    return place


def _possible_steps(place: Place, recipe: Recipe, *, has_plan: bool) -> range:
    """Return the plan steps that a command after `place` can belong to.

    Without a plan nothing announces a new step but its first command, once the step before it
    is through.
    """
    first = max(1, place.step)
    last = first
    if not has_plan and 0 < place.step <= len(recipe.steps):
        step = recipe.steps[place.step - 1]
        through = place.look >= len(step.explore) and place.check >= len(step.verify)
        last += through and (step.edit is None or bool(place.edit))
    return range(first, min(last, len(recipe.steps)) + 1)


def _after_planctl(place: Place, action: Action, recipe: Recipe) -> Place:
    active = _ACTIVE.search(action.output or "")
    if active:
        # The plan's own display is never pruned and outlives lost commands.
        place = max(place, Place(min(int(active.group(1)), len(recipe.steps) + 1)))
    verb = action.arguments.get("action")
    step = action.arguments.get("step")
    if verb == "start" and isinstance(step, int):
        return max(place, Place(min(step, len(recipe.steps) + 1)))
    if verb == "complete" and place.step > 0:
        return place._replace(edit=1, check=n_checks(recipe, place.step) + 1)
    return place


def _after_command(place: Place, command: str, recipe: Recipe) -> Place | None:
    """Return the place after a command that belongs to the place's step; None if it does not."""
    step = recipe.steps[place.step - 1]
    if command in step.explore[place.look :]:
        return place._replace(look=step.explore.index(command, place.look) + 1)
    is_checking = bool(place.edit) or step.edit is None
    if is_checking and command in step.verify[place.check :]:
        check = step.verify.index(command, place.check) + 1
        return Place(place.step, len(step.explore), 1, check)
    return None


def n_checks(recipe: Recipe, step: int) -> int:
    """Return how many verifying commands a plan step has; 0 for the review."""
    return len(recipe.steps[step - 1].verify) if step <= len(recipe.steps) else 0


def times_read(actions: Iterable[Action], path: str) -> int:
    """Return how many of the actions read `path`."""
    reads = (read_of(action.command) for action in actions if action.tool == "bash")
    return sum(1 for read in reads if read is not None and read.path == path)
