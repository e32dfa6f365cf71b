"""mini-SWE-agent's `DefaultAgent` with a plan, our limits, and whole turns.

Owns the loop's differences from mini: the step limit counts step calls, limits and full windows
end a run with a status of their own, a submission in the middle of a batch keeps the other outputs,
nothing is saved or rendered twice on the way. Imports minisweagent: load it through `mini.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import FormatError, LimitsExceeded, Submitted, TimeExceeded

from pipeline.agent.actions import BASH, Action, BadReplyError
from pipeline.agent.boxed_env import BoxedEnv
from pipeline.agent.messages import EXIT_ROLE, MiniMessage, observation_dict
from pipeline.agent.own_tools import OwnTools
from pipeline.agent.prompts import output_frame, rendered
from pipeline.agent.viewed_model import ViewedModel
from pipeline.records.failure import ContextOverflowError, NodeError
from pipeline.spec.agent import AgentSpec

NOT_EXECUTED = "Not executed: the task was submitted before this."


class PlanAgent(DefaultAgent):  # type: ignore[misc]
    """The agent of every arm."""

    def __init__(
        self,
        model: ViewedModel,
        env: BoxedEnv,
        *,
        spec: AgentSpec,
        plan: bool,
        tools: OwnTools,
        tool_names: Sequence[str],
        now: Callable[[], float],
        should_stop: Callable[[], bool],
    ) -> None:
        system = f"{spec.system_template.rstrip()}\n\n{spec.plan_instructions}" if plan else None
        super().__init__(
            model,
            env,
            system_template=system or spec.system_template,
            instance_template=spec.instance_template,
            step_limit=spec.step_limit,
            cost_limit=0.0,
            max_consecutive_format_errors=spec.max_consecutive_format_errors,
        )
        self.loop = False
        """Whether one call was made `loop_length` times in a row."""
        self._spec, self._tools, self._tool_names = spec, tools, tuple(tool_names)
        self._now, self._should_stop = now, should_stop
        self._started = now()
        self._last_actions: list[tuple[str, str]] = []
        self._n_identical = 0

    # --- what mini does once a step and we do not -------------------------------------------------
    def save(self, path: Path | None, *extra_dicts: Any) -> dict[str, Any]:  # noqa: ARG002
        """Save nothing: a finished run is one record, written once."""
        return {}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return what prompts may name: the task and the working directory."""
        return {**self.env.get_template_vars(), **self.extra_template_vars, **kwargs}

    def _render_template(self, template: str) -> str:
        return rendered(template, **self.get_template_vars())

    # --- the loop ---------------------------------------------------------------------------------
    def query(self) -> MiniMessage:
        """Return the model's next message.

        Raises:
            LimitsExceeded: a limit, or the window, ends the run.
            FormatError: the reply is unusable; the model is told why.
            InfraError: our side failed, or the worker is shutting down.
        """
        self._check_limits()
        self.n_calls += 1
        try:
            message: MiniMessage = self.model.query(self.messages)
        except BadReplyError as error:
            raise FormatError(self._format_error(error)) from error
        except ContextOverflowError as error:
            raise LimitsExceeded(exit_message("ContextWindowExceeded", str(error))) from error
        self.add_messages(message)
        return message

    def execute_actions(self, message: MiniMessage) -> list[MiniMessage]:
        """Carry the message's actions out in order and return their results.

        Raises:
            Submitted: one of them submitted; the results are in the history all the same.
        """
        actions = [
            Action(tool=a["tool"], command=a["command"], tool_call_id=a.get("tool_call_id"))
            for a in message["extra"]["actions"]
        ]
        submitted: Submitted | None = None
        results: list[MiniMessage] = []
        for action in actions:
            if submitted is not None:
                results.append(observation_dict(action, NOT_EXECUTED, returncode=None))
                continue
            try:
                results.append(self._result_of(action))
            except Submitted as error:
                submitted = error
                output = error.messages[0]["extra"].pop("output")
                results.append(self._observation(action, output))
        self.add_messages(*results)
        self._note_loop(actions)
        if submitted is not None:
            raise submitted
        if self.loop and self._spec.stop_on_loop:
            raise LimitsExceeded(exit_message("StoppedOnLoop", "the same call again and again"))
        return results

    def _result_of(self, action: Action) -> MiniMessage:
        if action.tool == BASH:
            return self._observation(action, self.env.execute({"command": action.command}))
        # The tools see what was shown up to here, this turn's assistant message included.
        self.model.absorb(self.messages)
        answer = self._tools.answer(
            action.tool,
            action.command,
            self.model.trajectory,
            is_call=action.tool_call_id is not None,
        )
        result = observation_dict(
            action,
            answer.text,
            returncode=answer.returncode,
            output=answer.text,
            output_start=0,
        )
        result["extra"]["plan_changes"] = answer.plan_changes
        return result

    def _observation(self, action: Action, output: dict[str, Any]) -> MiniMessage:
        template, facts = self._spec.observation_template, {**output}
        raw = facts.pop("output")
        content = rendered(template, output=output)
        before, after = output_frame(template, **facts)
        return observation_dict(
            action,
            content,
            returncode=output["returncode"],
            dropped_bytes=output["dropped_bytes"],
            undecodable_bytes=output["undecodable_bytes"],
            output=raw,
            output_start=len(before) if content == before + raw + after else None,
        )

    def _format_error(self, error: BadReplyError) -> MiniMessage:
        content = rendered(
            self._spec.format_error_template,
            error=error.error,
            finish_reason=error.finish_reason,
            tool_names=self._tool_names,
        )
        return {"role": "user", "content": content, "extra": {"interrupt_type": "FormatError"}}

    def _check_limits(self) -> None:
        if self._should_stop():
            raise NodeError("the run was stopped before its end: its worker is shutting down")
        if 0 < self._spec.step_limit <= self.n_calls:
            raise LimitsExceeded(exit_message("LimitsExceeded", f"{self.n_calls} steps"))
        wall_s = self._now() - self._started
        if 0 < self._spec.wall_limit_s <= wall_s:
            raise TimeExceeded(exit_message("TimeExceeded", f"{wall_s:.0f} s"))

    def _note_loop(self, actions: Sequence[Action]) -> None:
        asked = [(action.tool, action.command) for action in actions]
        self._n_identical = self._n_identical + 1 if asked == self._last_actions else 1
        self._last_actions = asked
        if 0 < self._spec.loop_length <= self._n_identical:
            self.loop = True


def exit_message(exit_status: str, detail: str) -> MiniMessage:
    """Return mini's closing message of a run that ends without a submission."""
    return {
        "role": EXIT_ROLE,
        "content": detail,
        "extra": {"exit_status": exit_status, "submission": ""},
    }
