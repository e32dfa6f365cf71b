"""Pruning whenever the model likes, with a reminder now and then and no cleanup turn (METHODS 2).

The model must know the outputs' ids without a listing, so each output gets its id when it arrives,
before it is ever sent: no cached prefix breaks.
"""

from collections.abc import Sequence

from pipeline.context import prune_tool
from pipeline.context.plan_prune import asked_in_turn
from pipeline.context.shown import content_edit, newest_turn, output_ids
from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Part, Trajectory, shown_content
from pipeline.spec.policy import DiscardAnytime


class DiscardAnytimePolicy:
    """Stamps outputs with their ids, reminds, and carries out what the model asked to prune."""

    def __init__(self, spec: DiscardAnytime, *, placeholder: str | None) -> None:
        self._spec = spec
        self._placeholder = placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the prunings the newest turn asked for, and the stamps of its outputs."""
        turn = newest_turn(trajectory)
        if turn is None:
            return ()
        edits = asked_in_turn(
            turn, trajectory, standing, self._placeholder, self._spec.protect_last_turns
        )
        results = sum(len(t.observations) for t in trajectory.turns)
        every = self._spec.nudge_every
        nudged = results // every > (results - len(turn.observations)) // every
        ids = {m.index: number for number, m in output_ids(trajectory).items()}
        outputs = [m for m in turn.observations if m.index in ids]
        for message in outputs:
            shown = standing.get((message.index, Part.CONTENT))
            if shown is not None and shown.reason != "elide":
                continue
            text = f"[output {ids[message.index]}]\n{shown_content(message, standing)}"
            if nudged and message is outputs[-1]:
                text += "\n" + nudge(results)
            edits.append(content_edit(message, text, "stamp"))
        return edits


def nudge(results: int) -> str:
    """Return the reminder at a number of tool results."""
    return (
        f"[There are {results} tool results by now. If you no longer need some of the outputs,"
        f" {prune_tool.NAME} with their numbers removes them; you need not remove any.]"
    )
