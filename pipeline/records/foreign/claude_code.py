"""Claude Code's session logs (`projects/*/*.jsonl` below its configuration folder).

One line holds one block of a reply, so the lines of one `message.id` and `requestId` are one call,
billed once; of its usage the line with most output tokens counts. `input_tokens` leaves cache reads
and writes out. Lines form a tree: the conversation is the path from the newest line to its root,
with the results of parallel calls, which hang off that path; other branches were billed too and
count as calls aside. A compaction starts a new root that names the old one. System prompt and tools
are not in the file: they are the first call's prompt less its messages. Forks, sub-agents and the
compaction's own call (`agent-acompact-*`) repeat their parent's messages, which are billed once, in
the file that `repeated_calls` names.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.plural import plural
from pipeline.records.foreign.counts import counts_in, tokens
from pipeline.records.foreign.history import History, Usage
from pipeline.records.foreign.jsonl import objects_in
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.views.trajectory import ToolCall

Entry = Mapping[str, Any]
CallKey = tuple[str, str]
"""Message and request: a side question repeats message ids under requests of its own."""

_LINKS = frozenset({"uuid", "parentUuid", "logicalParentUuid"})
_KEPT = _LINKS | {
    *("type", "message", "timestamp", "requestId", "isSidechain", "isCompactSummary", "version")
}
"""What is read of a line; beside it stand copies of results, as large again."""
_REPLY = re.compile(rb'"id":\s*"(msg_\w+)"')
_FORKED = b'"forkedFrom":'

_NO_MODEL = "<synthetic>"
"""In place of a model's name: the tool wrote the reply itself, as when a request failed."""
_PLACEHOLDER_SHARE = 0.5
"""An output count below this share of the text's own tokens was never filled in."""


def is_claude_code(head: bytes) -> bool:
    """Return whether a log that begins so is one."""
    return b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head)


def run_from_claude_code(
    path: Path, count: Count, billed_elsewhere: Collection[str] = ()
) -> ForeignRun:
    """Return the run of a session's log.

    Args:
        path: the log.
        count: tokens of a text.
        billed_elsewhere: ids of messages that another file bills; see `repeated_calls`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no conversation.
    """
    lines = [_kept(line) for line in objects_in(path) if line.get("uuid")]
    entries = [line for line in lines if isinstance(line.get("message"), Mapping)]
    apart = not _is_sub_agents(path)
    main = [e for e in entries if not (apart and e.get("isSidechain"))]
    chosen = _conversation(main, lines)
    history = History(count=count, hides_prefix=True)
    usages = _usages(entries)
    blocks_of: dict[CallKey, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in chosen:
        if entry["type"] == "assistant":
            blocks_of[_key(entry)] += _blocks(entry)
    taken: set[CallKey] = set()
    estimated = 0
    for entry in chosen:
        history.note_time(entry.get("timestamp"))
        if entry.get("isCompactSummary"):
            history.forget()
        if entry["type"] == "user":
            _take_user(history, entry)
            continue
        key = _key(entry)
        if key in taken:
            continue
        taken.add(key)
        elsewhere = key[0] in billed_elsewhere
        estimated += _take_reply(history, usages[key], blocks_of[key], elsewhere=elsewhere)
    for key, entry in usages.items():
        is_call = entry["message"].get("model") != _NO_MODEL
        if is_call and key not in taken and key[0] not in billed_elsewhere:
            history.bill_aside(_usage(entry), started_at=entry.get("timestamp"))
    _note(history, estimated)
    first = next((e for e in main if e["type"] == "assistant"), {})
    return history.run(
        agent="claude-code",
        version=str(first.get("version") or "unknown"),
        model=str(first.get("message", {}).get("model") or "unknown"),
    )


def repeated_calls(files: Iterable[Path]) -> dict[Path, frozenset[str]]:
    """Return, for each log, the ids of messages that another of the logs bills.

    A fork repeats its parent's messages, and so do sub-agents and a compaction's own call. The
    original is the file that neither says it was forked nor is a sub-agent's; of several, the one
    that was changed last the longest time ago.

    Args:
        files: Claude Code's logs. The parent of a sub-agent's log is asked too.
    """
    logs = set(files)
    ids_of = {}
    rank_of: dict[Path, tuple[bool, bool, float, str]] = {}
    for path in logs | {p for p in map(_parent, logs) if p is not None and p.is_file()}:
        ids_of[path], forked = _message_ids(path)
        rank_of[path] = forked, _is_sub_agents(path), path.stat().st_mtime, str(path)
    original: dict[str, Path] = {}
    for path in sorted(rank_of, key=rank_of.__getitem__):
        for name in ids_of[path]:
            original.setdefault(name, path)
    return {path: frozenset(i for i in ids_of[path] if original[i] != path) for path in logs}


def _message_ids(path: Path) -> tuple[set[str], bool]:
    """Return the ids of a log's replies, and whether it says that it was forked."""
    ids: set[str] = set()
    forked = False
    with path.open("rb") as lines:
        for line in lines:
            ids.update(found.decode() for found in _REPLY.findall(line))
            forked = forked or _FORKED in line
    return ids, forked


def _is_sub_agents(path: Path) -> bool:
    return "subagents" in path.parts or path.name.startswith("agent-")


def _parent(path: Path) -> Path | None:
    """Return the log of the session that a sub-agent's file belongs to."""
    return path.parent.parent.with_suffix(".jsonl") if path.parent.name == "subagents" else None


def _kept(line: Mapping[str, Any]) -> Entry:
    names = _KEPT if line.get("type") in ("user", "assistant") else _LINKS
    return {name: line[name] for name in names if name in line}


def _conversation(entries: Sequence[Entry], lines: Sequence[Entry]) -> list[Entry]:
    """Return the messages on the path from the newest to its root, with what belongs to them.

    Args:
        entries: lines with a message.
        lines: all that have an id: others lie on the path too, a compaction's border for one.
    """
    talk = [e for e in entries if e.get("type") in ("user", "assistant")]
    by_uuid = {e["uuid"]: e for e in lines}
    place = {e["uuid"]: position for position, e in enumerate(entries)}
    if not talk:
        raise ValueError("it holds no conversation")
    path: set[str] = set()
    at: Entry | None = talk[-1]
    while at is not None and at["uuid"] not in path:
        path.add(at["uuid"])
        at = by_uuid.get(at.get("parentUuid") or at.get("logicalParentUuid") or "")
    replies = {_key(e) for e in talk if e["uuid"] in path and e["type"] == "assistant"}
    blocks = [e for e in talk if e["type"] == "assistant" and _key(e) in replies]
    asked = {str(b.get("id")) for e in blocks for b in _blocks(e) if b.get("type") == "tool_use"}
    chosen = {e["uuid"]: e for e in blocks}
    for entry in talk:
        if entry["type"] == "user" and (entry["uuid"] in path or _answers(entry) & asked):
            chosen[entry["uuid"]] = entry
    return sorted(chosen.values(), key=lambda e: place[e["uuid"]])


def _take_reply(
    history: History, entry: Entry, blocks: Sequence[Mapping[str, Any]], *, elsewhere: bool
) -> bool:
    """Add a call and its reply; return whether its output had to be estimated."""
    usage = _usage(entry)
    is_call = usage.model != _NO_MODEL
    if is_call:
        history.bill(usage, started_at=entry.get("timestamp"), elsewhere=elsewhere)
    history.reply(
        _texts(blocks, "text"),
        reasoning=_joined(blocks, "thinking"),
        calls=_calls(blocks),
        at=entry.get("timestamp"),
    )
    written = history.messages[-1].n_tokens + history.messages[-1].reasoning_tokens
    if not is_call or elsewhere or (usage.completion or 0) >= written * _PLACEHOLDER_SHARE:
        return False
    history.bill_again(replace(usage, completion=written))
    return True


def _take_user(history: History, entry: Entry) -> None:
    content, at = entry["message"].get("content"), entry.get("timestamp")
    rest = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "tool_result":
            failed = 1 if part.get("is_error") else 0
            history.result(part.get("tool_use_id"), part.get("content"), returncode=failed, at=at)
        else:
            rest.append(part)
    if not isinstance(content, list):
        history.say("user", content, at=at)
    elif rest:
        history.say("user", rest, at=at)


def _usages(entries: Iterable[Entry]) -> dict[CallKey, Entry]:
    """Return a line with the usage of each call in the file: the one with most output.

    Its time is that of the call's first line.
    """
    found: dict[CallKey, Entry] = {}
    for entry in entries:
        if entry.get("type") != "assistant":
            continue
        before = found.setdefault(_key(entry), entry)
        if _output_of(entry) > _output_of(before):
            found[_key(entry)] = {**entry, "timestamp": before.get("timestamp")}
    return found


def _output_of(entry: Entry) -> int:
    return tokens(counts_in(entry["message"].get("usage")), "output_tokens") or 0


def _usage(entry: Entry) -> Usage:
    usage = counts_in(entry["message"].get("usage"))
    fresh, read = (tokens(usage, n) for n in ("input_tokens", "cache_read_input_tokens"))
    split = counts_in(usage.get("cache_creation"))
    short, long = (tokens(split, f"ephemeral_{kept}_input_tokens") for kept in ("5m", "1h"))
    written = tokens(usage, "cache_creation_input_tokens")
    if written is None and split:
        written = (short or 0) + (long or 0)
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached=read,
        written=written,
        written_1h=long,
        completion=tokens(usage, "output_tokens"),
        model=entry["message"].get("model"),
    )


def _note(history: History, estimated: int) -> None:
    if history.aside:
        history.notes.append(
            f"billed and not replayed: {plural(len(history.aside), 'call')} on other branches"
        )
    if history.n_repeated:
        history.notes.append("what it repeats of its parent's session is billed there")
    if estimated:
        history.notes.append(f"{estimated} output counts are placeholders: estimated from the text")
    unsplit = sum(
        bool(c.cache_write_tokens) and c.cache_write_1h_tokens is None for c in history.calls
    )
    if unsplit:
        history.notes.append(
            f"cache writes of {plural(unsplit, 'call')} without a lifetime: taken as five minutes"
        )


def _key(entry: Entry) -> CallKey:
    return str(entry["message"].get("id")), str(entry.get("requestId"))


def _blocks(entry: Entry) -> Iterator[Mapping[str, Any]]:
    content = entry["message"].get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping):
            yield block


def _answers(entry: Entry) -> set[str]:
    return {str(b.get("tool_use_id")) for b in _blocks(entry) if b.get("type") == "tool_result"}


def _texts(blocks: Iterable[Mapping[str, Any]], kind: str) -> str:
    return "\n".join(str(b.get(kind)) for b in blocks if b.get("type") == kind)


def _joined(blocks: Iterable[Mapping[str, Any]], kind: str) -> str | None:
    return _texts(blocks, kind) or None


def _calls(blocks: Iterable[Mapping[str, Any]]) -> list[ToolCall]:
    return [
        ToolCall(id=str(b.get("id")), name=str(b.get("name")), arguments=json.dumps(b.get("input")))
        for b in blocks
        if b.get("type") == "tool_use"
    ]
