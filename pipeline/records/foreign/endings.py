"""How a run that somebody else made ended: from its exit status and what the error said.

Other scaffolds end a run with the name of an exception. Whether that was the agent's doing cannot
be left to a default: a run without a single model call, or one that ended in its container, on the
way to the server, for want of quota or for a wrong key, failed on its maker's side and never judges
an agent. A full window is `limit_context` in any server's words. A name that none of the tables
knows, with a text that says nothing either, is `unknown_ending` and is shown with its text.
"""

import re
from dataclasses import dataclass

from pipeline.records.failure import FailureClass
from pipeline.records.full_window import is_overflow

_NAMES: dict[FailureClass, tuple[str, ...]] = {
    FailureClass.OK: ("Submitted", "AgentFinished", "completed"),
    FailureClass.LIMIT_STEPS: ("LimitsExceeded", "StepLimitExceeded", "MaxStepsExceeded"),
    FailureClass.LIMIT_COST: ("CostLimitExceeded", "BudgetLimitExceeded"),
    FailureClass.LIMIT_TIME: ("TimeExceeded", "AgentTimeoutError", "TimeLimitExceeded"),
    FailureClass.LIMIT_CONTEXT: (
        "ContextWindowExceeded",
        "ContextWindowExceededError",
        "ContextLengthExceededError",
    ),
    FailureClass.LIMIT_FORMAT: ("RepeatedFormatError", "FormatError"),
    FailureClass.INFRA_SERVER: (
        *("APIConnectionError", "APIError", "APITimeoutError", "APIResponseValidationError"),
        *("AuthenticationError", "PermissionDeniedError", "NotFoundError", "PaymentRequiredError"),
        *("BadGatewayError", "InternalServerError", "RateLimitError", "ServiceUnavailableError"),
        *("MidStreamFallbackError", "BudgetExceededError", "UnsupportedParamsError", "Timeout"),
        *("OpenRouterAPIError", "OpenRouterAuthenticationError", "OpenRouterRateLimitError"),
        *("RequestyAPIError", "RequestyAuthenticationError", "RequestyRateLimitError"),
        *("ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "RemoteProtocolError"),
        *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "SSLError"),
    ),
    FailureClass.INFRA_SANDBOX: (
        *("CalledProcessError", "DockerException", "ImageNotFound", "ContainerError"),
        *("TimeoutExpired", "EnvironmentStartTimeoutError", "SandboxError", "SandboxTimeoutError"),
        *("DockerError", "BrokenPipeError"),
    ),
    # mini saves after every step: a file without an ending is of a run that was killed.
    FailureClass.INFRA_NODE: (
        "",
        "KeyboardInterrupt",
        "SystemExit",
        "MemoryError",
        "CancelledError",
    ),
}
_CLASS_OF = {name: ending for ending, names in _NAMES.items() for name in names}

_TEXTS: tuple[tuple[FailureClass, str], ...] = (
    (FailureClass.INFRA_DISK, r"no space left|disk quota|read-only file system"),
    (
        FailureClass.INFRA_SERVER,
        r"(insufficient|exceeded|out of|not enough|no) [\w ]{0,30}(credits?|quota|balance|funds)"
        r"|\bquota\b|requires more credits|payment required|billing|rate.?limit|too many requests"
        r"|overloaded|api.?key|unauthori[sz]ed|authenticat|permission denied by|forbidden"
        r"|connection (refused|reset|aborted|error|closed)|timed? ?out|bad gateway"
        r"|service unavailable|internal server error|name resolution|remote end closed"
        r"|(status|error) ?(code)?:? ?(401|402|403|407|408|429|5\d\d)\b",
    ),
    (
        FailureClass.INFRA_SANDBOX,
        r"\b(docker|podman|apptainer|singularity|enroot|containerd?|oci runtime|sandbox)\b"
        r"|exec format error|image not found",
    ),
    (FailureClass.INFRA_NODE, r"out of memory|cannot allocate memory|\bkilled\b"),
)
_PATTERNS = tuple((ending, re.compile(pattern, re.IGNORECASE)) for ending, pattern in _TEXTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What a file says of its run's end."""

    exit_status: str
    """The name of an exception, as a rule."""
    error: str = ""
    """What the exception said; without the traceback's code."""
    submission: str = ""
    n_calls: int
    """Calls to the model that the file holds."""
    over_budget: bool = False
    """Whether the run's cost reached the file's limit of it, and its steps did not reach theirs."""

    @property
    def failure_class(self) -> FailureClass:
        """The class of the ending; see this module."""
        named = _CLASS_OF.get(_bare(self.exit_status))
        if named is FailureClass.OK:
            return FailureClass.OK if self.submission.strip() else FailureClass.SUBMITTED_EMPTY
        if not (named and named.is_infra) and is_overflow(None, self.error):
            return FailureClass.LIMIT_CONTEXT
        found = named or self._by_text()
        if self.n_calls == 0 and not (found and found.is_infra):
            return FailureClass.INFRA_NODE
        if found is FailureClass.LIMIT_STEPS and self.over_budget:
            return FailureClass.LIMIT_COST
        return found or FailureClass.UNKNOWN_ENDING

    def _by_text(self) -> FailureClass | None:
        # An exception's name is words without spaces: InsufficientQuota.
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.exit_status)
        said = f"{name} {self.error}"
        return next((ending for ending, pattern in _PATTERNS if pattern.search(said)), None)


def _bare(exit_status: str) -> str:
    """Return an exception's name without its module and without what it said."""
    return re.split(r"[:(]", exit_status, maxsplit=1)[0].strip().rpartition(".")[2]
