"""How a run or a grade ended, and the errors that are ours rather than the agent's.

The values are written to disk and never change. An error derived from `InfraError` means that
our side broke: it is retried, never shown to the model as output, and never counted against an
arm.
"""

from enum import StrEnum

from pipeline.records.full_window import FullWindow


class FailureClass(StrEnum):
    """How a run ended (docs/methods.md, Endings)."""

    OK = "ok"
    """The agent submitted a patch."""
    SUBMITTED_EMPTY = "submitted_empty"
    SUBMITTED_OVERSIZE = "submitted_oversize"
    """The submitted patch is too large to keep (`protocols.WHOLE_LIMIT_BYTES`)."""
    LIMIT_STEPS = "limit_steps"
    LIMIT_TIME = "limit_time"
    LIMIT_CONTEXT = "limit_context"
    LIMIT_FORMAT = "limit_format"
    LIMIT_COST = "limit_cost"
    """A budget of money; only in runs that were recorded elsewhere."""
    AGENT_ERROR = "agent_error"
    INFRA_SERVER = "infra_server"
    INFRA_SANDBOX = "infra_sandbox"
    INFRA_NODE = "infra_node"
    INFRA_DISK = "infra_disk"
    UNKNOWN_ENDING = "unknown_ending"
    """A run that was recorded elsewhere and ended in a way that nobody here knows."""

    @property
    def is_infra(self) -> bool:
        """True where our side failed, so that the run is to be repeated and not judged."""
        return self.value.startswith("infra_")


class GradeClass(StrEnum):
    """What grading a patch came to."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    PATCH_FAILED = "patch_failed"
    GRADE_INFRA = "grade_infra"
    GRADE_TIMEOUT = "grade_timeout"


class InfraError(Exception):
    """Our side failed. `failure_class` says which part."""

    failure_class = FailureClass.INFRA_NODE


class ServerError(InfraError):
    """The model server is gone, hung, or keeps answering with errors."""

    failure_class = FailureClass.INFRA_SERVER


class SandboxError(InfraError):
    """The sandbox could not be started, or broke under a command."""

    failure_class = FailureClass.INFRA_SANDBOX


class PathError(SandboxError):
    """A path inside cannot be read or written: the error of whoever named it, if that was asked."""


class NodeError(InfraError):
    """The node itself failed us: memory, processes, a vanished mount."""

    failure_class = FailureClass.INFRA_NODE


class DiskError(InfraError):
    """No space, no quota, or a read-only file system."""

    failure_class = FailureClass.INFRA_DISK


class ContextOverflowError(Exception):
    """The prompt no longer fits the model's window. The agent's ending, not ours."""

    def __init__(self, message: str, *, window: FullWindow | None = None) -> None:
        """Keep what the server said.

        Args:
            message: its words.
            window: its numbers, where it gave any.
        """
        super().__init__(message)
        self.window = window or FullWindow()
