"""One step of the simulated agent's work: what to do next, given what is in view."""

import shlex
from dataclasses import dataclass
from random import Random

from pipeline.serving.sim.edits import chosen_edit, edit_command
from pipeline.serving.sim.progress import (
    CLOSING,
    SUBMIT_ANSWER,
    Place,
    Progress,
    n_checks,
    times_read,
)
from pipeline.serving.sim.recipe import Need, Recipe, RecipeStep
from pipeline.serving.sim.sight import missing_needs, reading_command, recall_of, shows_old_text
from pipeline.serving.sim.speech import Act, bash
from pipeline.serving.sim.view import View

TURN_CAP = 110
"""From this answer on the agent closes the run, whatever is left to do."""
RUSH_TURN = 60
"""From here on no detours are made."""
P_DETOUR = 0.22
P_SKIP = 0.12
P_TOGETHER = 0.3
P_TRUST_STALE = 0.3
P_RECALL = 0.8
"""Chance to recall a pruned output where that is possible, instead of running a command again."""
P_GIVE_UP = 0.005
"""Chance of giving up where nothing but the task is shown: the only way such a run can end."""
READS_BEFORE_BLIND = 4
"""So many fruitless reads of a file, and the agent goes on from memory."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that a decision may depend on."""

    recipe: Recipe
    view: View
    progress: Progress
    rng: Random
    plan_verbs: frozenset[str]
    one_act: bool
    """Text mode: one action an answer."""
    may_recall: bool = False
    """There is a tool that shows pruned outputs again."""
    says_done: bool = False
    """There is a tool that ends the task; the submission is what was changed."""

    @property
    def step(self) -> RecipeStep:
        """The recipe step of the current place."""
        return self.recipe.steps[self.progress.place.step - 1]

    @property
    def in_rush(self) -> bool:
        """True late in a run."""
        return self.progress.turn > RUSH_TURN

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < probability

    def together(self) -> bool:
        """Return whether to put more than one action into this answer."""
        return self.chance(P_TOGETHER) and not self.one_act

    def at(self, place: Place) -> "Scene":
        """Return the same scene, farther on."""
        return Scene(
            recipe=self.recipe,
            view=self.view,
            progress=self.progress._replace(place=place),
            rng=self.rng,
            plan_verbs=self.plan_verbs,
            one_act=self.one_act,
            may_recall=self.may_recall,
        )


@dataclass(frozen=True, kw_only=True)
class Move:
    """What to do, and where that leaves the work."""

    acts: tuple[Act, ...]
    place: Place
    about: str


def next_move(scene: Scene) -> Move:
    """Return the next move; there always is one."""
    place = scene.progress.place
    n_steps = len(scene.recipe.steps)
    if _gives_up(scene) or scene.progress.turn > TURN_CAP:
        return _close(scene.at(max(place, Place(n_steps + 1))))
    if place.step == 0:
        return _open(scene)
    if place.step > n_steps:
        return _close(scene)
    if place.check > n_checks(scene.recipe, place.step):
        return _start(scene, place.step + 1)
    if scene.chance(0.0 if scene.in_rush else P_DETOUR):
        return Move(acts=(_detour(scene),), place=place, about="have another look around")
    if place.look < len(scene.step.explore):
        return _look(scene)
    if not place.edit:
        return _edit(scene)
    return _check(scene)


def _gives_up(scene: Scene) -> bool:
    sees_nothing = not scene.view.actions and not scene.view.texts
    return sees_nothing and scene.chance(P_GIVE_UP)


def _open(scene: Scene) -> Move:
    """Make the plan, or begin at once where there is no plan tool."""
    if not scene.plan_verbs:
        return next_move(scene.at(Place(1)))
    titles = [step.title for step in scene.recipe.steps]
    set_plan = Act("planctl", {"action": "set", "steps": [*titles, "Review the diff and submit"]})
    has_set = any(a.arguments.get("action") == "set" for a in scene.view.actions)
    if has_set or scene.progress.turn > 6:
        return _start(scene, 1)
    if scene.one_act or scene.chance(0.4):
        return Move(acts=(set_plan,), place=Place(0), about="make a plan")
    started = _start(scene, 1)
    return Move(acts=(set_plan, *started.acts), place=started.place, about="make a plan and begin")


def _start(scene: Scene, number: int) -> Move:
    """Start a plan step, perhaps with its first command."""
    place = Place(number)
    if not scene.plan_verbs:
        return next_move(scene.at(place))
    start = Act("planctl", {"action": "start", "step": number})
    explore = scene.recipe.steps[number - 1].explore if number <= len(scene.recipe.steps) else ()
    if explore and scene.together():
        place = place._replace(look=1)
        return Move(acts=(start, bash(explore[0])), place=place, about=f"begin step {number}")
    return Move(acts=(start,), place=place, about=f"begin step {number}")


def _look(scene: Scene) -> Move:
    """Run the next exploring command, or two, or leave one out."""
    place, explore = scene.progress.place, scene.step.explore
    at = place.look
    if at + 1 < len(explore) and scene.chance(P_SKIP):
        at += 1
    upto = at + (2 if scene.together() else 1)
    commands = list(explore[at:upto])
    scene.rng.shuffle(commands)
    return Move(
        acts=tuple(map(bash, commands)),
        place=place._replace(look=min(upto, len(explore))),
        about=f"look into {scene.step.title.lower()}",
    )


def _edit(scene: Scene) -> Move:
    """Edit, if all that is needed is in view; else read it first."""
    place = scene.progress.place
    missing = _unseen(scene)
    blind = bool(missing) and _has_lost_patience(scene, missing)
    if missing and not blind:
        reads = missing if scene.together() else missing[:1]
        acts: list[Act] = []
        for act in (_shown_again(scene, need) for need in reads):
            # One recall may serve two needs.
            acts += [] if act in acts else [act]
        return Move(
            acts=tuple(acts),
            place=place,
            about=f"read {reads[0].path} around line {reads[0].start}",
        )
    edit = chosen_edit(scene.recipe, place.step, scene.rng, blind=blind)
    done = place._replace(edit=1)
    if edit is None:
        return _check(scene.at(done))
    command = edit_command(edit, number=place.step, title=scene.step.title, rng=scene.rng)
    return Move(acts=(bash(command),), place=done, about=f"change {edit.path}")


def _unseen(scene: Scene) -> list[Need]:
    """Return what must be read before the step's edit."""
    actions, step = scene.view.actions, scene.step
    missing = missing_needs(actions, step.needs)
    if missing and scene.chance(P_TRUST_STALE):
        missing = missing_needs(actions, step.needs, stale_too=True)
    if not step.needs and step.edit is not None and not shows_old_text(actions, step.edit):
        missing = [Need(path=step.edit.path, start=1, end=400)]
    return missing


def _has_lost_patience(scene: Scene, missing: list[Need]) -> bool:
    """Return whether reading again has stopped to make sense."""
    place, turn, since = scene.progress
    if turn > min(25 + 22 * place.step, TURN_CAP - 15):
        return True
    allowed = READS_BEFORE_BLIND + len(scene.step.needs)
    return any(times_read(since, need.path) >= allowed for need in missing)


def _shown_again(scene: Scene, need: Need) -> Act:
    """Return the act that brings needed lines into view: a recall, or a command."""
    number = recall_of(scene.view.actions, need) if scene.may_recall else None
    if number is not None and scene.chance(P_RECALL):
        return Act("recall", {"id": number})
    return bash(_reading(scene, need))


def _reading(scene: Scene, need: Need) -> str:
    return reading_command(need, style=scene.rng.randrange(3), margin=scene.rng.choice((0, 3, 10)))


def _check(scene: Scene) -> Move:
    """Run the next verifying command, or complete the step."""
    place, verify = scene.progress.place, scene.step.verify
    if place.check < len(verify):
        return Move(
            acts=(bash(verify[place.check]),),
            place=place._replace(check=place.check + 1),
            about=f"check {scene.step.title.lower()}",
        )
    if not scene.plan_verbs:
        return next_move(scene.at(Place(place.step + 1)))
    outcome = f"step {place.step} done: {scene.step.title}"
    complete = Act("planctl", {"action": "complete", "outcome": outcome})
    done = place._replace(check=len(verify) + 1)
    if scene.one_act or scene.chance(0.3):
        return Move(acts=(complete,), place=done, about=f"finish step {place.step}")
    started = _start(scene, place.step + 1)
    return Move(
        acts=(complete, *started.acts),
        place=started.place,
        about=f"finish step {place.step} and go on",
    )


def _close(scene: Scene) -> Move:
    """Write the patch, look at it, submit it, in three answers; or say that the task is done."""
    place = scene.progress.place
    if scene.recipe.answers is not None:
        return _answer(scene, scene.recipe.answers)
    if scene.says_done:
        return Move(acts=(Act("task_done", {}),), place=place, about="say that it is done")
    # Beyond the cap the count of answers tells which command is due, if nothing else does.
    at = min(max(place.look, scene.progress.turn - TURN_CAP - 1), len(CLOSING) - 1)
    return Move(
        acts=(bash(CLOSING[at]),),
        place=place._replace(look=at + 1),
        about=("write the patch", "look at the patch", "submit the patch")[at],
    )


def _answer(scene: Scene, answers: tuple[str, str]) -> Move:
    """Write the answer and submit it, in two answers; or say both at once."""
    right, wrong = answers
    said = right if scene.recipe.solvable and scene.chance(scene.recipe.skill) else wrong
    place = scene.progress.place
    if scene.says_done:
        acts = (Act("task_done", {"answer": said}),)
        return Move(acts=acts, place=place, about="give the answer")
    if place.look == 0 and scene.progress.turn <= TURN_CAP + 1:
        write = bash(f"printf '%s\\n' {shlex.quote(said)} > /tmp/answer.txt")
        return Move(acts=(write,), place=place._replace(look=1), about="write the answer")
    return Move(acts=(bash(SUBMIT_ANSWER),), place=place, about="submit the answer")


def _detour(scene: Scene) -> Act:
    """Return a command that brings the work no farther."""
    paths = sorted({need.path for step in scene.recipe.steps for need in step.needs})
    looks = [
        "git status --short",
        "git diff --stat",
        *scene.step.explore[: scene.progress.place.look],
    ]
    for path in paths:
        looks += [
            f"git log --oneline -3 -- {path}",
            f"grep -n 'def \\|class ' {path}",
            f"wc -l {path}",
        ]
    if scene.plan_verbs and scene.chance(0.15):
        return _plan_detour(scene)
    return bash(scene.rng.choice(looks))


def _plan_detour(scene: Scene) -> Act:
    review = len(scene.recipe.steps) + 1
    if "rename" in scene.plan_verbs and scene.chance(0.5):
        title = "Review the whole diff, then submit"
        return Act("planctl", {"action": "rename", "step": review, "title": title})
    return Act("planctl", {"action": "show"})
