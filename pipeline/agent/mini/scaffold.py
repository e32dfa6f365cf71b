"""The scaffold `mini`: mini-SWE-agent's own loop with one command tool."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.agent.bash_tool import BashTool
from pipeline.agent.ending import Ending, answered, submitted
from pipeline.agent.mini.importing import prepare_import
from pipeline.agent.run_diff import first_commit_to_submit_from, run_diff
from pipeline.agent.session import Session
from pipeline.agent.tool import Tool
from pipeline.protocols import Sandbox
from pipeline.spec.agent import AgentSpec

SENTINEL = b"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""First line of the output of the command that ends a run; what follows is the patch."""


@dataclass(frozen=True, slots=True)
class MiniScaffold:
    """mini-SWE-agent."""

    spec: AgentSpec

    def tools(self, *, asks_focus: bool) -> Sequence[Tool]:
        """Return `bash`."""
        timeout_s = self.spec.command_timeout_s
        return [BashTool(timeout_s=timeout_s, asks_focus=asks_focus, whole_after=SENTINEL)]

    def run(self, session: Session, sandbox: Sandbox, task: str) -> Ending:
        """Run mini's agent to its end."""
        prepare_import()
        from pipeline.agent.mini.loop import MiniAgent

        agent = MiniAgent(self.spec, session, sandbox, sentinel=SENTINEL)
        if self.spec.submit == "sentinel":
            return agent.ended(task)
        if self.spec.submit == "answer":
            ending = agent.ended(task)
            return answered(ending.submission) if ending.is_submission else ending
        timeout_s = self.spec.command_timeout_s
        commit = first_commit_to_submit_from(sandbox, timeout_s=timeout_s)
        ending = agent.ended(task)
        if not ending.is_submission:
            return ending
        committed_only = self.spec.submit == "commits"
        return submitted(
            run_diff(sandbox, commit, timeout_s=timeout_s, committed_only=committed_only)
        )


scaffold = MiniScaffold
