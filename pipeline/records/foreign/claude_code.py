"""Claude Code's session logs (`projects/*/*.jsonl` below its configuration folder).

One line holds one block of a reply, so the lines of one `message.id` and `requestId` are one call,
billed once; of its usage the line with most output tokens counts. `input_tokens` leaves cache reads
and writes out. Lines form a tree: the conversation is the path from the newest line to its root,
with the results of parallel calls, which hang off that path; other branches were billed too and are
noted. A compaction starts a new root that names the old one. System prompt and tools are not in the
file: they are the first call's prompt less its messages. Sub-agents' files repeat their parent's
messages, which are billed there.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.records.foreign.history import History, Usage
from pipeline.records.foreign.jsonl import objects_in
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.views.trajectory import ToolCall

Entry = Mapping[str, Any]
CallKey = tuple[str, str]
"""Message and request: a side question repeats message ids under requests of its own."""

_PLACEHOLDER_SHARE = 0.5
"""An output count below this share of the text's own tokens was never filled in."""


def is_claude_code(head: bytes) -> bool:
    """Return whether a log that begins so is one."""
    return b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head)


def run_from_claude_code(path: Path, count: Count) -> ForeignRun:
    """Return the run of a session's log.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no conversation.
    """
    entries = [entry for entry in objects_in(path) if entry.get("uuid") and "message" in entry]
    apart = "subagents" not in path.parts
    main = [e for e in entries if not (apart and e.get("isSidechain"))]
    chosen = _conversation(main)
    history = History(count=count, hides_prefix=True)
    usages = _usages(entries)
    billed_before = _ids_of_parent(path)
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
        blocks = blocks_of[key]
        usage = _usage(usages[key])
        if key[0] not in billed_before:
            history.bill(usage, started_at=entry.get("timestamp"))
        history.reply(
            _texts(blocks, "text"), reasoning=_joined(blocks, "thinking"), calls=_calls(blocks)
        )
        written = history.messages[-1].n_tokens + history.messages[-1].reasoning_tokens
        if key[0] not in billed_before and (usage.completion or 0) < written * _PLACEHOLDER_SHARE:
            history.bill_again(_usage(usages[key], completion=written))
            estimated += 1
    _note(history, taken, usages, billed_before, estimated)
    first = next((e for e in main if e["type"] == "assistant"), {})
    return history.run(
        agent="claude-code",
        version=str(first.get("version") or "unknown"),
        model=str(first.get("message", {}).get("model") or "unknown"),
    )


def _conversation(entries: Sequence[Entry]) -> list[Entry]:
    """Return the lines on the path from the newest to its root, with what belongs to them."""
    talk = [e for e in entries if e.get("type") in ("user", "assistant")]
    by_uuid = {e["uuid"]: e for e in entries}
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
    asked = {str(b["id"]) for e in blocks for b in _blocks(e) if b.get("type") == "tool_use"}
    chosen = {e["uuid"]: e for e in blocks}
    for entry in talk:
        if entry["type"] == "user" and (entry["uuid"] in path or _answers(entry) & asked):
            chosen[entry["uuid"]] = entry
    return sorted(chosen.values(), key=lambda e: place[e["uuid"]])


def _take_user(history: History, entry: Entry) -> None:
    content = entry["message"].get("content")
    rest = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "tool_result":
            failed = 1 if part.get("is_error") else 0
            history.result(part.get("tool_use_id"), part.get("content"), returncode=failed)
        else:
            rest.append(part)
    if not isinstance(content, list):
        history.say("user", content)
    elif rest:
        history.say("user", rest)


def _usages(entries: Iterable[Entry]) -> dict[CallKey, Mapping[str, Any]]:
    """Return the usage of each call in the file, on whatever branch: the one with most output."""
    found: dict[CallKey, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("type") != "assistant":
            continue
        usage = entry["message"].get("usage") or {}
        before = found.setdefault(_key(entry), usage)
        if (usage.get("output_tokens") or 0) > (before.get("output_tokens") or 0):
            found[_key(entry)] = usage
    return found


def _usage(usage: Mapping[str, Any], *, completion: int | None = None) -> Usage:
    parts = [
        usage.get(name)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    fresh, read, written = parts
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached=read,
        written=written,
        completion=usage.get("output_tokens") if completion is None else completion,
    )


def _note(
    history: History,
    taken: set[CallKey],
    usages: Mapping[CallKey, Mapping[str, Any]],
    billed_before: frozenset[str],
    estimated: int,
) -> None:
    elsewhere = len(set(usages) - taken)
    if elsewhere:
        history.notes.append(f"{elsewhere} calls on other branches were billed and are left out")
    if billed_before & {message for message, _ in taken}:
        history.notes.append("what it repeats of its parent's session is billed there")
    if estimated:
        history.notes.append(f"{estimated} output counts are placeholders: estimated from the text")


def _ids_of_parent(path: Path) -> frozenset[str]:
    """Return the message ids of the session that a sub-agent's file belongs to."""
    parent = path.parent.parent.with_suffix(".jsonl")
    if path.parent.name != "subagents" or not parent.is_file():
        return frozenset()
    with parent.open(encoding="utf-8", errors="replace") as lines:
        return frozenset(m for line in lines for m in re.findall(r'"id":\s*"(msg_\w+)"', line))


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
        ToolCall(id=str(b["id"]), name=str(b["name"]), arguments=json.dumps(b.get("input")))
        for b in blocks
        if b.get("type") == "tool_use"
    ]
