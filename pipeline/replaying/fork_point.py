"""Whether an arm would have changed anything in a recorded run that was made without it."""

from pipeline.records.run_record import RunRecord
from pipeline.views.policy import AuxReply, AuxRequest, CallKind, Policy
from pipeline.views.walk import Growing, PlainView, Walk


class _AskedError(Exception):
    """The policy wants an answer that nobody recorded."""


def never_acts(policy: Policy, record: RunRecord) -> bool:
    """Return whether `policy` neither edits nor asks anything all along a run of another arm.

    Args:
        policy: fresh.
        record: of a run whose own arm edits nothing: what stands in it is what all arms share.
    """

    def unanswered(request: AuxRequest) -> AuxReply:
        raise _AskedError(request.kind)

    history = Growing(record.trajectory())
    view = PlainView(trajectory=history.trajectory)
    walk = Walk(policy, view, unanswered)
    try:
        for call in record.calls:
            history.grow_to(call.message_count)
            view.apply(call.edits)
            is_step = call.kind == CallKind.STEP
            if is_step and (walk.ask_policy() or walk.server_question() is not None):
                return False
    except _AskedError:
        return False
    return True
