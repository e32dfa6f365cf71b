"""Codex's rollout logs (`sessions/` and `archived_sessions/` below `CODEX_HOME`).

What the model said stands in items; a `token_count` event closes the call that they belong to.
`input_tokens` includes cached ones. The event repeats with unchanged totals, which closes nothing,
and right after a compaction it is an estimate. `compacted` replaces the history. A sub-agent's file
begins with a copy of its parent's history and counts, which are older than the file. Reasoning is a
summary, or encrypted: then its text stays unknown.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.plural import plural
from pipeline.records.foreign.counts import counts_in, tokens
from pipeline.records.foreign.history import History, Usage
from pipeline.records.foreign.jsonl import objects_in
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.records.foreign.times import unix_seconds
from pipeline.views.trajectory import ToolCall

_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Items that call a tool, and where what it is called with stands."""
_UNKNOWN = "unknown"


def is_codex(head: bytes) -> bool:
    """Return whether a log that begins so is one."""
    return b'"payload"' in head and (b'"session_meta"' in head or b'"response_item"' in head)


def run_from_codex(path: Path, count: Count) -> ForeignRun:
    """Return the run of a rollout's log.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no conversation.
    """
    reader = _Reader(History(count=count, hides_prefix=True))
    for line in objects_in(path):
        payload = line.get("payload")
        if isinstance(payload, Mapping):
            reader.take(str(line.get("type")), payload, line.get("timestamp"))
    return reader.run()


class _Reader:
    """Follows a rollout: items gather into a reply until something else comes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._total: Mapping[str, Any] | None = None
        self._said_at: Any = None
        self._open_calls = 0
        """Replies whose usage has not come yet."""
        self._after_compaction = False
        self._began: float | None = None
        self._copying = False
        """Its parent's history, at the beginning of a fork's or sub-agent's file."""
        self._replacing = False
        """The new history of a compaction."""
        self._model = self._version = _UNKNOWN

    def take(self, kind: str, payload: Mapping[str, Any], timestamp: Any) -> None:
        """Take one line."""
        moment = unix_seconds(timestamp)
        self._copying = None not in (moment, self._began) and moment < self._began  # type: ignore[operator]
        if not self._copying:
            self._history.note_time(timestamp)
        if kind == "session_meta" and self._began is None:
            self._began = unix_seconds(payload.get("timestamp") or timestamp)
            self._version = str(payload.get("cli_version") or _UNKNOWN)
        elif kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
        elif kind == "response_item":
            self._take_item(payload, timestamp)
        elif kind == "compacted":
            self._compact(payload, timestamp)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._take_count(payload)

    def run(self) -> ForeignRun:
        """Return the run so far."""
        self._close_reply()
        if self._history.n_repeated:
            n = self._history.n_repeated
            self._history.notes.append(
                f"{plural(n, 'call is', 'calls are')} its parent's: billed there"
            )
        return self._history.run(agent="codex", version=self._version, model=self._model)

    def _take_item(self, item: Mapping[str, Any], timestamp: Any) -> None:
        kind = str(item.get("type"))
        if kind in {"reasoning", *_CALLS} or item.get("role") == "assistant":
            self._said_at = timestamp
        if kind == "message" and item.get("role") == "assistant":
            self._texts += _texts(item.get("content"))
        elif kind == "reasoning":
            self._reasoning += _texts(item.get("summary"))
        elif kind in _CALLS:
            given = item.get(_CALLS[kind])
            text = given if isinstance(given, str) else json.dumps(given)
            name = str(item.get("name") or "local_shell")
            self._calls.append(ToolCall(id=str(item.get("call_id")), name=name, arguments=text))
        elif kind.endswith("_output"):
            self._close_reply()
            self._history.result(item.get("call_id"), _output_of(item.get("output")), at=timestamp)
        elif kind == "message":
            self._close_reply()
            role = "user" if item.get("role") == "user" else "system"
            self._history.say(role, _in_chat_form(item.get("content")), at=timestamp)

    def _close_reply(self) -> None:
        if not (self._texts or self._reasoning or self._calls):
            return
        if not self._replacing:
            self._history.bill(Usage(), started_at=self._said_at, elsewhere=self._copying)
            self._open_calls += 1
        self._history.reply(
            "\n".join(self._texts),
            reasoning="\n".join(self._reasoning) or None,
            calls=self._calls,
            at=self._said_at,
        )
        self._texts, self._reasoning, self._calls = [], [], []
        self._after_compaction = False

    def _take_count(self, payload: Mapping[str, Any]) -> None:
        info = payload.get("info")
        if not isinstance(info, Mapping):
            return
        total = info.get("total_token_usage")
        repeated = total is not None and total == self._total
        before, self._total = self._total, total
        self._close_reply()
        if repeated or self._after_compaction:
            return
        last = info.get("last_token_usage") or _difference(total, before)
        if self._open_calls and isinstance(last, Mapping):
            self._history.bill_again(_usage(last, self._model))
            self._open_calls = 0

    def _compact(self, payload: Mapping[str, Any], timestamp: Any) -> None:
        self._close_reply()
        self._history.forget()
        self._after_compaction = True
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            self._replacing = True
            for item in replacement:
                self._take_item(item, timestamp)
            self._close_reply()
            self._replacing, self._after_compaction = False, True
        elif payload.get("message"):
            self._history.say("user", payload["message"])


def _usage(usage: Mapping[str, Any], model: str) -> Usage:
    return Usage(
        prompt=tokens(usage, "input_tokens"),
        cached=tokens(usage, "cached_input_tokens"),
        written=tokens(usage, "cache_write_input_tokens"),
        completion=tokens(usage, "output_tokens"),
        reasoning=tokens(usage, "reasoning_output_tokens"),
        model=None if model == _UNKNOWN else model,
    )


def _difference(total: Any, before: Any) -> Mapping[str, Any] | None:
    """Return what a call added to the totals, where only they are told."""
    if not isinstance(total, Mapping):
        return None
    start = counts_in(before)
    return {
        name: now - (tokens(start, name) or 0)
        for name in total
        if (now := tokens(total, name)) is not None
    }


def _texts(parts: Any) -> list[str]:
    listed = parts if isinstance(parts, list) else []
    return [str(part["text"]) for part in listed if isinstance(part, Mapping) and part.get("text")]


def _output_of(output: Any) -> Any:
    """Return a result's content: a text, parts, or an object that holds one of them."""
    if isinstance(output, Mapping):
        return _in_chat_form(output.get("content"))
    return _in_chat_form(output)


def _in_chat_form(content: Any) -> Any:
    if not isinstance(content, Sequence) or isinstance(content, str):
        return content
    return [dict(part) for part in content if isinstance(part, Mapping)]
