"""ATIF trajectories, versions 1.0 to 1.8: what Harbor and NeMo Gym write of any agent's run.

A step of the agent is a call of the model with its tool calls and their results. By the format's
text "input" includes cache reads and writes; Harbor's converter for opencode leaves the writes out.
Steps copied from another context were billed there, steps with `llm_call_count` 0 made no call, and
those above 1 sum several calls, whose sizes are then unknown. A run that goes on in another file is
one run: what that file copies is its new context. Sub-agents have caches of their own; their calls
count as calls aside. Unknown keys are ignored.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.plural import plural
from pipeline.records.failure import FailureClass
from pipeline.records.foreign.counts import tokens
from pipeline.records.foreign.endings import Ending
from pipeline.records.foreign.history import History, Usage, text_of
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.views.trajectory import ToolCall

_CONTINUED = re.compile(rb'"continued_trajectory_ref":\s*"(?:[^"]*/)?([^"/]+)"')
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens", "cache_write_input_tokens")


def is_atif(data: Any) -> bool:
    """Return whether this is such a file's content."""
    return isinstance(data, Mapping) and str(data.get("schema_version")).startswith("ATIF")


def run_from_atif(data: Mapping[str, Any], path: Path, count: Count) -> ForeignRun:
    """Return the run of an ATIF file.

    Args:
        data: the file's content.
        path: where it lies: Harbor says in `result.json` beside how the trial ended.
        count: tokens of a text.

    Raises:
        OSError: it goes on in a file that is not there.
        ValueError: it holds no steps.
    """
    agent = _mapping(data.get("agent"))
    reader = _Reader(History(count=count), str(agent.get("name")))
    reader.take(data)
    for part in _continuations(data, path):
        reader.history.forget()
        reader.take(part)
    reader.note()
    return reader.history.run(
        agent=str(agent.get("name") or "unknown"),
        version=str(agent.get("version") or "unknown"),
        model=str(agent.get("model_name") or _model_of(data) or "unknown"),
        ending=_ending_beside(path, len(reader.history.calls)),
    )


def continuations_named(content: bytes) -> list[str]:
    """Return the names of the files in which a trajectory goes on, from its file's content."""
    return [name.decode("utf-8", "replace") for name in _CONTINUED.findall(content)]


def _continuations(data: Mapping[str, Any], path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the trajectories that go on where the one before ended.

    Raises:
        OSError: one is not there.
        ValueError: one is no trajectory, or comes again.
    """
    seen = {path.name}
    while name := data.get("continued_trajectory_ref"):
        following = path.with_name(Path(str(name)).name)
        if following.name in seen:
            raise ValueError(f"it goes on in {following.name}, which it came from")
        seen.add(following.name)
        data = json.loads(following.read_bytes())
        if not is_atif(data):
            raise ValueError(f"it goes on in {following.name}, which is no ATIF trajectory")
        yield data


class _Reader:
    """Follows the steps of a trajectory and of those that it goes on in."""

    def __init__(self, history: History, agent: str) -> None:
        self.history = history
        self._agent = agent
        self._n_summed = self._n_copied = 0

    def take(self, data: Mapping[str, Any]) -> None:
        """Take the steps of one file."""
        for step in data.get("steps") or ():
            source = step.get("source")
            self.history.note_time(step.get("timestamp"))
            if source == "agent":
                self._take_call(step)
                self.history.reply(
                    step.get("message"),
                    reasoning=step.get("reasoning_content"),
                    calls=[_tool_call(call) for call in step.get("tool_calls") or ()],
                )
            else:
                self.history.say("system" if source == "system" else "user", step.get("message"))
            _take_results(self.history, step)
        for sub_agent in data.get("subagent_trajectories") or ():
            self._take_aside(_mapping(sub_agent))

    def note(self) -> None:
        """Note what people should know of it."""
        if self._n_summed:
            self.history.notes.append(
                f"several calls are summed in {plural(self._n_summed, 'step')}: their sizes are "
                "unknown"
            )
        if self._n_copied:
            self.history.notes.append(
                f"copied from another context, not billed again: {plural(self._n_copied, 'step')}"
            )
        if self.history.aside:
            self.history.notes.append(
                f"{plural(len(self.history.aside), 'call')} of its sub-agents, which have "
                "caches of their"
                " own, were billed and are not replayed"
            )

    def _take_call(self, step: Mapping[str, Any]) -> None:
        calls = step.get("llm_call_count", 1)
        several = isinstance(calls, int) and calls > 1
        copied = bool(step.get("is_copied_context"))
        self._n_copied += copied
        if calls == 0:
            return
        self._n_summed += several and not copied
        usage = Usage() if several else _usage(step, self._agent)
        self.history.bill(usage, started_at=step.get("timestamp"), elsewhere=copied)

    def _take_aside(self, data: Mapping[str, Any]) -> None:
        agent = str(_mapping(data.get("agent")).get("name") or self._agent)
        for step in data.get("steps") or ():
            if step.get("source") == "agent" and not step.get("is_copied_context"):
                self.history.bill_aside(_usage(step, agent), started_at=step.get("timestamp"))


def _usage(step: Mapping[str, Any], agent: str) -> Usage:
    metrics = _mapping(step.get("metrics"))
    extra = _mapping(metrics.get("extra"))
    known = (tokens(extra, name) for name in _WRITTEN)
    written = next((count for count in known if count is not None), None)
    prompt = tokens(metrics, "prompt_tokens")
    if agent == "opencode" and prompt is not None and "cache_write_tokens" in extra:
        prompt += written or 0
    return Usage(
        prompt=prompt,
        cached=tokens(metrics, "cached_tokens"),
        written=written,
        completion=tokens(metrics, "completion_tokens"),
        reasoning=tokens(
            extra, "reasoning_tokens" if "reasoning_tokens" in extra else "reasoning_output_tokens"
        ),
        model=step.get("model_name"),
    )


def _take_results(history: History, step: Mapping[str, Any]) -> None:
    for result in _mapping(step.get("observation")).get("results") or ():
        content = _in_chat_form(result.get("content"))
        if step.get("tool_calls"):
            history.result(result.get("source_call_id"), content)
        else:
            history.say("user", content)


def _in_chat_form(content: Any) -> Any:
    """Return a content with its parts as chat messages have them."""
    if not isinstance(content, list):
        return content
    return [part for part in content if isinstance(part, dict)]


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(
        id=str(call.get("tool_call_id") or ""), name=str(call["function_name"]), arguments=text
    )


def _model_of(data: Mapping[str, Any]) -> str | None:
    return next((s["model_name"] for s in data.get("steps") or () if s.get("model_name")), None)


def _ending_beside(path: Path, n_calls: int) -> tuple[str, FailureClass, str | None] | None:
    """Return how Harbor says that the trial ended; None where it does not say."""
    for folder in (path.parent.parent, path.parent):
        try:
            result = json.loads((folder / "result.json").read_bytes())
        except (OSError, ValueError):
            continue
        raised = _mapping(_mapping(result).get("exception_info"))
        if raised.get("exception_type"):
            said = text_of(raised.get("exception_message"))
            ending = Ending(exit_status=raised["exception_type"], error=said, n_calls=n_calls)
            return ending.exit_status, ending.failure_class, said
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
