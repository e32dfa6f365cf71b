"""mini-SWE-agent's `Environment` over a sandbox, and the one place that knows a submission.

Owns how a command's result becomes mini's output dict. Does not know images, the plan, or what
the output looks like to the model. Imports minisweagent: load it through `mini.py`.
"""

from collections.abc import Callable
from typing import Any

from minisweagent.exceptions import Submitted

from pipeline.agent.messages import EXIT_ROLE
from pipeline.agent.printed_patch import patch_after
from pipeline.protocols import Sandbox

SENTINEL = b"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""First line of the output of the command that ends a run; what follows is the patch."""


class BoxedEnv:
    """Runs commands in a sandbox."""

    def __init__(
        self, sandbox: Sandbox, *, command_timeout_s: float, now: Callable[[], float]
    ) -> None:
        self.config = None
        self.tool_s = 0.0
        """Seconds spent in commands so far."""
        self._sandbox = sandbox
        self._command_timeout_s = command_timeout_s
        self._now = now

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:  # noqa: ARG002
        """Return mini's output dict of a command.

        Raises:
            Submitted: the command submitted; the exception's message carries the patch and, as
                `output`, the dict that would have been returned.
            SandboxError: the sandbox itself broke.
        """
        started = self._now()
        result = self._sandbox.execute(
            action["command"], timeout_s=self._command_timeout_s, whole_after=SENTINEL
        )
        self.tool_s += self._now() - started
        output = {
            "output": result.output,
            "returncode": result.returncode,
            "exception_info": (
                f"The command ran for {self._command_timeout_s:g} s and was stopped."
                if result.timed_out
                else ""
            ),
            "dropped_bytes": result.dropped_bytes,
            "undecodable_bytes": result.undecodable_bytes,
        }
        submission = patch_after(SENTINEL, result)
        if submission is not None:
            extra = {
                "exit_status": "Submitted",
                "submission": submission.patch,
                "oversize_patch_bytes": submission.oversize_bytes,
                "output": output,
            }
            raise Submitted({"role": EXIT_ROLE, "content": submission.patch, "extra": extra})
        return output

    def get_template_vars(self, **_kwargs: Any) -> dict[str, Any]:
        """Return what prompts may name."""
        return {"workdir": self._sandbox.workdir}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: runs are kept as records."""
        return {}
