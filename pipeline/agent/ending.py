"""How a run ends: its exit status, the class that counts, the patch or answer.

Limits are the session's and the same on every scaffold; submissions are each scaffold's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.agent.printed_patch import NO_PATCH, PrintedPatch
from pipeline.protocols import WHOLE_LIMIT_BYTES
from pipeline.records.failure import FailureClass
from pipeline.records.patch import patch_bytes

SUBMITTED = "Submitted"
LIMITS: Mapping[str, FailureClass] = {
    "LimitsExceeded": FailureClass.LIMIT_STEPS,
    "StoppedOnLoop": FailureClass.LIMIT_STEPS,
    "TimeExceeded": FailureClass.LIMIT_TIME,
    "ContextWindowExceeded": FailureClass.LIMIT_CONTEXT,
    "RepeatedFormatError": FailureClass.LIMIT_FORMAT,
}
"""The failure class of every exit status of a run that was stopped before it submitted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What a run came to."""

    exit_status: str
    failure_class: FailureClass
    failure: str | None = None
    """For people: what limit it was, or the traceback."""
    submission: PrintedPatch = NO_PATCH
    answer: str | None = None
    """The text that was submitted, where that is what runs submit."""

    @property
    def is_submission(self) -> bool:
        """Whether the agent said that it is done."""
        return self.exit_status == SUBMITTED

    @property
    def is_limit(self) -> bool:
        """Whether the run was stopped at a limit: what it changed until then may be kept."""
        return self.failure_class in LIMITS.values()


class EndedError(Exception):
    """Ends a run from wherever it is; not a failure."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.exit_status)
        self.ending = ending


def submitted(submission: PrintedPatch) -> Ending:
    """Return the ending of a run that submitted."""
    size = submission.oversize_bytes
    if size is not None:
        ended = FailureClass.SUBMITTED_OVERSIZE
    else:
        ended = FailureClass.OK if submission.patch.strip() else FailureClass.SUBMITTED_EMPTY
    return Ending(
        exit_status=SUBMITTED,
        failure_class=ended,
        failure=None
        if size is None
        else f"the submission has {size:,} bytes; at most {WHOLE_LIMIT_BYTES:,} are kept",
        submission=submission,
    )


def answered(submission: PrintedPatch) -> Ending:
    """Return the ending of a run that submitted a text."""
    answer = patch_bytes(submission.patch).decode(errors="replace")
    return replace(submitted(submission), submission=replace(submission, patch=""), answer=answer)


def at_limit(exit_status: str, detail: str) -> Ending:
    """Return the ending of a run that was stopped, `exit_status` being one of `LIMITS`."""
    return Ending(exit_status=exit_status, failure_class=LIMITS[exit_status], failure=detail)
