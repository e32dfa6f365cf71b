"""The scaffold `trae`: the loop rules and the four tools of Trae agent, in an own implementation.

A reply without a call is answered and the run goes on; `task_done` ends it once something was
changed, and what was changed against the first commit is the submission. An agent that answers
gives its answer to `task_done`. One rule differs from Trae's: arguments that are no JSON enter no
history, since chat templates parse them again. That Trae sends no reasoning back is a setting of
agents (`keeps_reasoning`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.agent.ending import Ending, answered, at_limit, submitted
from pipeline.agent.printed_patch import NO_PATCH, PrintedPatch
from pipeline.agent.prompts import output_start, rendered
from pipeline.agent.run_diff import first_commit_to_submit_from, run_diff
from pipeline.agent.session import Session
from pipeline.agent.tool import Action, BadReplyError, Tool, actions_from_calls
from pipeline.agent.trae.editor import EditorTool, clipped
from pipeline.agent.trae.tools import (
    ANSWER,
    TASK_DONE,
    RestartedBash,
    SequentialThinking,
    TaskDone,
)
from pipeline.protocols import Sandbox
from pipeline.spec.agent import AgentSpec

_NOT_DONE = "The task is not done: "
NOT_DONE = {
    "answer": _NOT_DONE + "give your answer as the argument `answer` of task_done.",
    "commits": _NOT_DONE + "nothing was committed. Commit your work, then call task_done.",
    "diff": _NOT_DONE + "nothing in the repository was changed. Solve it, then call task_done.",
}
"""What is said to `task_done` where there is nothing to submit."""


@dataclass(frozen=True, slots=True)
class TraeScaffold:
    """Trae agent's way of working."""

    spec: AgentSpec

    def tools(self, *, asks_focus: bool) -> Sequence[Tool]:
        """Return the shell, the editor, thinking and the end."""
        timeout_s = self.spec.command_timeout_s
        return [
            RestartedBash(timeout_s=timeout_s, asks_focus=asks_focus),
            EditorTool(timeout_s=timeout_s, asks_focus=asks_focus),
            SequentialThinking(),
            TaskDone(answers=self.spec.submit == "answer"),
        ]

    def run(self, session: Session, sandbox: Sandbox, task: str) -> Ending:
        """Work until `task_done` is accepted."""
        spec, timeout_s = self.spec, self.spec.command_timeout_s
        commit = None
        if spec.submit != "answer":
            commit = first_commit_to_submit_from(sandbox, timeout_s=timeout_s)
        names = {"task": task, "workdir": sandbox.workdir}
        session.say("system", rendered(session.system_template, **names))
        session.say("user", rendered(spec.instance_template, **names))
        n_unusable = 0
        while n_unusable < spec.max_consecutive_format_errors:
            reply = session.step()
            if not reply.tool_calls:
                session.take(reply)
                self._tell(session, "The reply holds no tool call.", reply.finish_reason)
                continue
            try:
                actions = actions_from_calls(reply, session.tools)
            except BadReplyError as error:
                n_unusable += 1
                session.refuse(reply, error.error)
                self._tell(session, error.error, error.finish_reason)
                continue
            n_unusable = 0
            session.take(reply)
            for action in actions:
                self._carry_out(action, session, sandbox)
            session.note_actions(actions)
            said_done = [action for action in actions if action.tool == TASK_DONE]
            if said_done:
                ending = self._ending(said_done[-1], sandbox, commit)
                if ending is not None:
                    return ending
                session.say("user", NOT_DONE[spec.submit])
        return at_limit("RepeatedFormatError", f"{n_unusable} unusable replies in a row")

    def _ending(self, done: Action, sandbox: Sandbox, commit: str | None) -> Ending | None:
        """Return what `task_done` ends the run with; None where there is nothing to submit."""
        if self.spec.submit == "answer":
            answer = (done.arguments or {}).get(ANSWER)
            usable = isinstance(answer, str) and bool(answer.strip())
            return answered(PrintedPatch(patch=str(answer))) if usable else None
        submission = run_diff(
            sandbox,
            commit,
            timeout_s=self.spec.command_timeout_s,
            committed_only=self.spec.submit == "commits",
        )
        return None if submission == NO_PATCH else submitted(submission)

    def _carry_out(self, action: Action, session: Session, sandbox: Sandbox) -> None:
        result = session.use(action, sandbox)
        if result.command is None:
            session.observe(action, result.output, result, output_start=0)
            return
        output = {
            "output": clipped(result.output),
            "returncode": result.returncode,
            "exception_info": "The command timed out." if result.command.timed_out else "",
        }
        template = self.spec.observation_template
        content = rendered(template, output=output)
        # A clipped output is not there as it was printed.
        whole = output["output"] == result.output
        start = output_start(template, output, content) if whole else None
        session.observe(action, content, result, output_start=start)

    def _tell(self, session: Session, error: str, finish_reason: str | None) -> None:
        session.say(
            "user",
            rendered(
                self.spec.format_error_template,
                error=error,
                finish_reason=finish_reason,
                tool_names=tuple(session.tools),
            ),
        )


def scaffold(agent: AgentSpec) -> TraeScaffold:
    """Return the scaffold; `task_done` prints no patch, so a sentinel can submit nothing."""
    if agent.submit == "sentinel":
        raise ValueError(f"agent {agent.name}: scaffold trae prints no patch; say submit=diff")
    return TraeScaffold(agent)
