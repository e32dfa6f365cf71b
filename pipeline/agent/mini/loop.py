"""mini-SWE-agent's `DefaultAgent` over a session: its loop, its prompts, its way of submitting.

Owns the loop's differences from mini: whole turns (a submission in the middle of a batch keeps the
other outputs), endings that the session gives, and nothing saved or rendered twice on the way.
Imports minisweagent: load it through `scaffold.py`.
"""

from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import FormatError

from pipeline.agent.ending import EndedError, Ending, at_limit, submitted
from pipeline.agent.mini.fences import actions_from_text
from pipeline.agent.printed_patch import PrintedPatch, patch_after
from pipeline.agent.prompts import output_start, rendered
from pipeline.agent.session import Session
from pipeline.agent.tool import Action, BadReplyError, ToolResult, actions_from_calls
from pipeline.protocols import ChatReply, CommandResult, Sandbox
from pipeline.spec.agent import AgentSpec

NOT_EXECUTED = "Not executed: the task was submitted before this."
EXIT_ROLE = "exit"
"""Role of mini's closing message, which is no part of the conversation."""


class MiniAgent(DefaultAgent):  # type: ignore[misc]
    """The agent of every arm. It is its own `Model` too: the session makes the calls."""

    def __init__(
        self, spec: AgentSpec, session: Session, sandbox: Sandbox, *, sentinel: bytes
    ) -> None:
        super().__init__(
            self,
            sandbox,
            system_template=session.system_template,
            instance_template=spec.instance_template,
            step_limit=0,
            cost_limit=0.0,
            max_consecutive_format_errors=spec.max_consecutive_format_errors,
        )
        self._spec, self._session, self._sandbox = spec, session, sandbox
        self._sentinel = sentinel

    def ended(self, task: str) -> Ending:
        """Run to the end."""
        try:
            info = self.run(task)
        except EndedError as end:
            return end.ending
        # All other endings are the session's: mini itself ends only what it cannot read.
        return at_limit(info["exit_status"], str(self.messages[-1]["content"]))

    # --- what mini's loop calls ---------------------------------------------------------------
    def save(self, path: Path | None, *extra_dicts: Any) -> dict[str, Any]:  # noqa: ARG002
        """Save nothing: a finished run is one record, written once."""
        return {}

    def format_message(self, **message: Any) -> dict[str, Any]:
        """Return the message as it is."""
        return message

    def add_messages(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """Add what mini says itself: the two prompts, and what it says to unusable replies."""
        for message in messages:
            if message["role"] != EXIT_ROLE:
                self._session.say(message["role"], message["content"])
        self.messages.extend(messages)
        return list(messages)

    def _render_template(self, template: str) -> str:
        return rendered(template, workdir=self._sandbox.workdir, **self.extra_template_vars)

    def query(self) -> list[Action]:
        """Return what the model wants done next.

        Raises:
            FormatError: the reply is unusable; the model is told why.
            EndedError: a limit, or the window, ends the run.
            InfraError: our side failed, or the worker is shutting down.
        """
        reply = self._session.step()
        try:
            actions = self._actions_of(reply)
        except BadReplyError as error:
            self._session.refuse(reply, error.error)
            raise FormatError({"role": "user", "content": self._told(error, reply)}) from error
        self._session.take(reply)
        return actions

    def execute_actions(self, message: list[Action]) -> list[dict[str, Any]]:
        """Carry a reply's actions out in order, and add their results to the history together.

        Raises:
            EndedError: one of them submitted, or the run loops.
        """
        done: list[tuple[Action, ToolResult | None]] = []
        submission: PrintedPatch | None = None
        for action in message:
            result = self._session.use(action, self._sandbox) if submission is None else None
            if result is not None and result.command is not None:
                submission = patch_after(self._sentinel, result.command)
            done.append((action, result))
        for action, result in done:
            self._observe(action, result)
        self._session.note_actions(message)
        if submission is not None:
            raise EndedError(submitted(submission))
        return []

    # --- text -----------------------------------------------------------------------------------
    def _actions_of(self, reply: ChatReply) -> list[Action]:
        tools = self._session.tools
        if self._session.has_tool_calls:
            return actions_from_calls(reply, tools)
        return actions_from_text(reply, tools, several=self._spec.parallel_tool_calls)

    def _told(self, error: BadReplyError, reply: ChatReply) -> str:
        return rendered(
            self._spec.format_error_template,
            error=error.error,
            finish_reason=error.finish_reason,
            has_tool_calls=bool(reply.tool_calls),
            tool_names=tuple(self._session.tools),
        )

    def _observe(self, action: Action, result: ToolResult | None) -> None:
        if result is None:
            self._session.observe(action, NOT_EXECUTED)
        elif result.command is None:
            self._session.observe(action, result.output, result, output_start=0)
        else:
            template, output = self._spec.observation_template, self._output(result.command)
            content = rendered(template, output=output)
            start = output_start(template, output, content)
            self._session.observe(action, content, result, output_start=start)

    def _output(self, result: CommandResult) -> dict[str, Any]:
        """Return what mini's observation template sees."""
        stopped = f"The command ran for {self._spec.command_timeout_s:g} s and was stopped."
        return {
            "output": result.output,
            "returncode": result.returncode,
            "exception_info": stopped if result.timed_out else "",
            "dropped_bytes": result.dropped_bytes,
            "undecodable_bytes": result.undecodable_bytes,
        }
