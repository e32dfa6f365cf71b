"""Whether a run got its arm's treatment: arms that never acted, baselines that were pruned.

The policy is run again over the finished trajectory, with the answers it recorded. Its decisions
now must equal the edits of the run; where it asks for an answer that was not recorded, the trigger
fired and the harness did not act. The verdict is stored with the run; the report counts verdicts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.arms.line_pruning import pruner_failures
from pipeline.arms.swe_pruner_pro import score_failures
from pipeline.views.policy import AuxReply, AuxRequest, Policy
from pipeline.views.trajectory import Edit, Trajectory
from pipeline.views.walk import Growing, PlainView, Walk


class Verdict(StrEnum):
    """The outcome of a treatment check. Values are on disk."""

    TREATED = "treated"
    """The arm's edits were made."""
    DECLINED = "declined"
    """The model was asked and chose nothing, or the arm only asks."""
    NOT_TRIGGERED = "not_triggered"
    """The run never met the arm's condition."""
    UNTREATED = "untreated"
    """The trigger fired and nothing was done, perhaps because a line pruner always failed: the run
    did not get its arm."""
    UNEXPECTED = "unexpected"
    """Edits were made that the arm would not make."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Treatment:
    """A run's treatment, checked."""

    verdict: Verdict
    n_asked: int
    """Answers that the run's decisions rest on: of auxiliary calls, servers and line pruners."""
    n_unasked: int
    """Times the policy wanted an answer and none was recorded."""
    n_judged: int
    """Outputs that a line pruner, or a head in the server, was asked about."""
    n_pruner_errors: int
    """Of these, shown whole because it failed."""
    by_reason: Mapping[str, int]
    """Edits made, by reason; shared elisions aside."""

    @property
    def is_valid(self) -> bool:
        """False for a run that must not count as one of its arm."""
        return self.verdict not in (Verdict.UNTREATED, Verdict.UNEXPECTED)


def treatment_of(
    policy: Policy, trajectory: Trajectory, moments: Iterable[int], made: Sequence[Edit]
) -> Treatment:
    """Return whether the run's edits are those of its arm.

    Args:
        policy: the run's.
        trajectory: the finished run, decisions included.
        moments: how many messages there were at each step call.
        made: all edits that came into force in the run, in order.
    """
    own = [edit for edit in made if edit.reason != "elide"]
    elisions = {e.message_index: e for e in made if e.reason == "elide"}
    unasked = 0

    def unanswered(request: AuxRequest) -> AuxReply:
        nonlocal unasked
        unasked += 1
        return AuxReply(kind=request.kind, content="")

    history = Growing(trajectory, trajectory.decisions)
    view = PlainView(trajectory=history.trajectory)
    walk = Walk(policy, view, unanswered)
    expected: list[Edit] = []
    for n_messages in moments:
        came = history.grow_to(n_messages)
        view.apply([elisions[m.index] for m in came if m.index in elisions])
        expected += walk.step()
    by_pruner = pruner_failures(trajectory.decisions)
    by_server = score_failures(trajectory.decisions)
    n_judged, n_errors = by_pruner[0] + by_server[0], by_pruner[1] + by_server[1]
    failed_always = n_judged > 0 and n_errors == n_judged
    return Treatment(
        verdict=_verdict(
            expected, own, len(trajectory.decisions), missed=unasked > 0 or failed_always
        ),
        n_asked=len(trajectory.decisions),
        n_unasked=unasked,
        n_judged=n_judged,
        n_pruner_errors=n_errors,
        by_reason=dict(Counter(edit.reason for edit in own)),
    )


def _verdict(
    expected: Sequence[Edit], made: Sequence[Edit], asked: int, *, missed: bool
) -> Verdict:
    if missed or (expected and not made):
        return Verdict.UNTREATED
    if list(made) != list(expected):
        return Verdict.UNEXPECTED
    if made:
        return Verdict.TREATED
    return Verdict.DECLINED if asked else Verdict.NOT_TRIGGERED
