"""Pruning whenever the model likes, with occasional reminders and without a cleanup turn.

See docs/methods.md, What people run.

The model must know the ids of outputs without a listing. So each output gets its id when it
arrives, before it is ever sent, and no cached prefix breaks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.arms.plan_prune import asked_in_turn
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science
from pipeline.views import prune_tool
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import content_edit, newest_turn, output_ids
from pipeline.views.trajectory import Edit, Edits, Part, Trajectory, Turn, shown_content


@dataclass(frozen=True, kw_only=True)
class DiscardAnytime(Parameters):
    """The model may prune at any time and is reminded occasionally; there is no cleanup turn."""

    source: ClassVar[str] = "practice: dynamic context pruning for opencode"
    example: ClassVar[Mapping[str, Any]] = {"nudge_every": 3}

    METHOD: ClassVar[int] = 2

    kind: Science[Literal["discard_anytime"]] = "discard_anytime"
    nudge_every: Science[Count] = 10
    """Tool results between reminders."""
    protect_last_turns: Science[Natural] = 1

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tool by which the model prunes, whenever it likes."""
        return (prune_tool.prune_tool(),)

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return DiscardAnytimePolicy(self, context)


class DiscardAnytimePolicy:
    """Stamps outputs with their ids, reminds, and carries out what the model asked to prune."""

    def __init__(self, spec: DiscardAnytime, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the prunings the newest turn asked for, and the stamps of its outputs."""
        turn = newest_turn(trajectory)
        if turn is None:
            return ()
        edits = asked_in_turn(
            turn, trajectory, standing, self._placeholder, self._spec.protect_last_turns
        )
        results, came = n_results(trajectory), len(turn.observations)
        every = self._spec.nudge_every
        nudged = results // every > (results - came) // every
        return edits + stamps(turn, trajectory, standing, nudge(results) if nudged else "")


def n_results(trajectory: Trajectory) -> int:
    """Return how many tool results there are, those of the harness's own tools included."""
    return sum(len(turn.observations) for turn in trajectory.turns)


def stamps(turn: Turn, trajectory: Trajectory, standing: Edits, reminder: str) -> list[Edit]:
    """Return the edits that write ids over a turn's outputs, and a reminder below the last."""
    ids = {m.index: number for number, m in output_ids(trajectory).items()}
    outputs = [m for m in turn.observations if m.index in ids]
    edits: list[Edit] = []
    for message in outputs:
        shown = standing.get((message.index, Part.CONTENT))
        if shown is not None and shown.reason != "elide":
            continue
        text = f"[output {ids[message.index]}]\n{shown_content(message, standing)}"
        if reminder and message is outputs[-1]:
            text += "\n" + reminder
        edits.append(content_edit(message, text, "stamp"))
    return edits


def nudge(results: int) -> str:
    """Return the reminder at a number of tool results."""
    return (
        f"[There are {results} tool results by now. If you no longer need some of the outputs,"
        f" {prune_tool.NAME} with their numbers removes them; you need not remove any.]"
    )
