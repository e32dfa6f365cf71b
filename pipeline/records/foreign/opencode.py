"""opencode's database (`opencode*.db`): one run a session, sub-agents' sessions included.

`tokens.input` leaves cache reads and writes out, and `tokens.output` leaves reasoning out although
it is billed. A reply is one call, or several where parts of kind `step-finish` say so. Outputs that
its own pruner removed are marked with the time of it: what was sent from then on is not what is
kept. A reply marked as summary replaced the history. The database is read where it lies if nothing
is pending beside it, else from a copy: nothing is ever written beside a source. Its older JSON
files are not read.
"""

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.records.failure import FailureClass
from pipeline.records.foreign.counts import tokens
from pipeline.records.foreign.endings import Ending
from pipeline.records.foreign.history import History, Usage
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.records.foreign.times import unix_seconds
from pipeline.views.trajectory import ToolCall

CLEARED = "[Old tool result content cleared]"
"""What opencode sends in place of an output that it pruned."""

_TABLES = frozenset({"session", "message", "part"})
_HEADER = b"SQLite format 3\x00"

Data = Mapping[str, Any]


def is_opencode(path: Path) -> bool:
    """Return whether a file is such a database."""
    with path.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            return False
    try:
        with _opened(path) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in rows} >= _TABLES
    except sqlite3.Error:
        return False


def runs_from_opencode(path: Path, count: Count) -> Iterator[ForeignRun]:
    """Yield the run of each session that has a conversation, oldest first.

    Raises:
        ValueError: the database is damaged.
    """
    try:
        with _opened(path) as database:
            sessions = database.execute("SELECT id, parent_id, version FROM session ORDER BY id")
            for session_id, parent_id, version in sessions.fetchall():
                messages = _messages(database, session_id)
                if any(data.get("role") == "assistant" for data, _ in messages):
                    yield _run(messages, count, str(version), is_child=parent_id is not None)
    except sqlite3.Error as error:
        raise ValueError(f"the database cannot be read: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for reading, without leaving anything beside it."""
    pending = path.with_name(f"{path.name}-wal")
    with tempfile.TemporaryDirectory(prefix="planprune-") as folder:
        source = path.absolute()
        if pending.exists() and pending.stat().st_size:
            source = Path(folder) / "copy.db"
            shutil.copyfile(path, source)
            shutil.copyfile(pending, source.with_name("copy.db-wal"))
            mode = "mode=rw"
        else:
            mode = "immutable=1"
        uri = f"file:{quote(str(source))}?{mode}"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            yield database


def _messages(database: sqlite3.Connection, session_id: str) -> list[tuple[Data, list[Data]]]:
    """Return the session's messages in order, each with its parts."""
    parts: dict[str, list[Data]] = {}
    rows = database.execute(
        "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id",
        [session_id],
    )
    for message_id, data in rows:
        parts.setdefault(message_id, []).append(json.loads(data))
    rows = database.execute(
        "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", [session_id]
    )
    return [(json.loads(data), parts.get(message_id, [])) for message_id, data in rows]


def _run(
    messages: Sequence[tuple[Data, list[Data]]], count: Count, version: str, *, is_child: bool
) -> ForeignRun:
    reader = _Reader(History(count=count, hides_prefix=True))
    for data, parts in messages:
        reader.take(data, parts)
    if is_child:
        reader.history.notes.append("it is a sub-agent's session, with a cache of its own")
    replies = [data for data, _ in messages if data.get("role") == "assistant"]
    whole = json.dumps([[data, parts] for data, parts in messages], sort_keys=True)
    return reader.history.run(
        agent="opencode",
        version=version,
        model=str(replies[0].get("modelID") or "unknown"),
        ending=_ending(replies[-1], len(reader.history.calls)),
        digest=hashlib.sha256(whole.encode()).hexdigest(),
    )


class _Reader:
    """Follows a session's messages."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._cleared: list[tuple[float, int]] = []
        """Since when an output's message is shown as cleared."""

    def take(self, data: Data, parts: Sequence[Data]) -> None:
        """Take one message."""
        times = _mapping(data.get("time"))
        self.history.note_time(times.get("created"))
        if data.get("role") != "assistant":
            self.history.say("user", _texts(parts, "text"), at=times.get("created"))
            return
        steps = list(_steps(parts))
        for number, (step, finish) in enumerate(steps, start=1):
            usage = _usage(_mapping((finish or data).get("tokens")), data.get("modelID"))
            self._clear_until(unix_seconds(times.get("created")))
            self.history.bill(usage, started_at=times.get("created"))
            if data.get("summary") is True:
                self.history.forget()
            tools = [part for part in step if part.get("type") == "tool"]
            self.history.reply(
                _texts(step, "text"),
                reasoning=_texts(step, "reasoning") or None,
                calls=[_tool_call(part) for part in tools],
                at=times.get("completed") if number == len(steps) else None,
            )
            for part in tools:
                self._take_result(part)
        self.history.note_time(times.get("completed"))

    def _take_result(self, part: Data) -> None:
        state = _mapping(part.get("state"))
        failed = state.get("status") == "error"
        content = state.get("error") if failed else state.get("output")
        cleared = unix_seconds(_mapping(state.get("time")).get("compacted"))
        if cleared is not None:
            self._cleared.append((cleared, len(self.history.messages)))
        self.history.result(str(part.get("callID")), content, returncode=int(failed))

    def _clear_until(self, now: float | None) -> None:
        """Show as cleared what opencode's own pruner had removed before a call."""
        due = [index for since, index in self._cleared if now is not None and since <= now]
        for index in due:
            self.history.show_instead(index, CLEARED)
        self._cleared = [entry for entry in self._cleared if entry[1] not in due]


def _steps(parts: Sequence[Data]) -> Iterator[tuple[list[Data], Data | None]]:
    """Yield the parts of each call of a reply, with what closed it; None: the message says it."""
    step: list[Data] = []
    closed = False
    for part in parts:
        if part.get("type") == "step-finish":
            yield step, part
            step, closed = [], True
        else:
            step.append(part)
    if not closed or any(part.get("type") in ("text", "tool") for part in step):
        yield step, None


def _usage(counts: Data, model: str | None) -> Usage:
    cache = _mapping(counts.get("cache"))
    read, written = tokens(cache, "read"), tokens(cache, "write")
    fresh, output, reasoning = (tokens(counts, name) for name in ("input", "output", "reasoning"))
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached=read,
        written=written,
        completion=None if output is None else output + (reasoning or 0),
        reasoning=reasoning,
        model=model,
    )


def _ending(last: Data, n_calls: int) -> tuple[str, FailureClass, str | None] | None:
    error = _mapping(last.get("error"))
    if not error.get("name"):
        return None
    said = str(_mapping(error.get("data")).get("message") or "")
    ending = Ending(exit_status=str(error["name"]), error=said, n_calls=n_calls)
    return ending.exit_status, ending.failure_class, said


def _tool_call(part: Data) -> ToolCall:
    given = _mapping(part.get("state")).get("input")
    return ToolCall(id=str(part.get("callID")), name=str(part["tool"]), arguments=json.dumps(given))


def _texts(parts: Sequence[Data], kind: str) -> str:
    return "\n".join(str(part.get("text")) for part in parts if part.get("type") == kind)


def _mapping(value: Any) -> Data:
    return value if isinstance(value, Mapping) else {}
