"""The labelled corpus that SWE-Pruner Pro released: JSON Lines, one labelled output a line.

A record brings its own context (`history`, the `tool_call`, its `tool_response`, the `next_turn`)
and the kept lines (`kept_frags`, from 1). Each record is therefore a run of its own here, with one
output to label, and the rest of the line head reads it as it reads recorded runs.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.linehead.recorded_run import RecordedRun
from pipeline.views.kept_lines import BoolArray, count_lines
from pipeline.views.trajectory import Message, ToolCall, Trajectory

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusRecord:
    """One labelled output with the messages around it."""

    run: RecordedRun
    message_index: int
    kept: BoolArray
    """Shape (lines of the output,)."""
    reasoning: str | None


def is_corpus(path: Path) -> bool:
    """Return whether `path` is a corpus file; in a folder, such files are not looked for."""
    return path.suffix == SUFFIX and path.is_file()


def corpus_records(path: Path) -> Iterator[CorpusRecord]:
    """Yield the records of a corpus file, one in memory at a time.

    Raises:
        ValueError: a line is no record of the corpus; the message names it.
    """
    with path.open("rb") as lines:
        digest = hashlib.file_digest(lines, "sha256").hexdigest()
        lines.seek(0)
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _record(json.loads(line), path.name, digest, number)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(
                    f"{path}, line {number}, is no record of the labelled corpus: "
                    f"{type(error).__name__}: {error}"
                ) from None


def _record(data: Mapping[str, Any], source: str, digest: str, number: int) -> CorpusRecord:
    history = [*data.get("history", ())]
    if not any(m.get("role") == "user" for m in history):
        # Templates want a task; the corpus leaves it out where the window has moved past it.
        history.insert(0, {"role": "user", "content": ""})
    call = data["tool_call"]
    shown_call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "corpus", "function": call}],
    }
    output = {"role": "tool", "content": data["tool_response"], "tool_call_id": "corpus"}
    messages: list[Message] = []
    for message in (*history, shown_call, output, *(data.get("next_turn") or ())):
        messages.append(_message(message, messages, str(call["name"])))
    trajectory = Trajectory()
    trajectory.append(messages)
    instance = str(data.get("instance_id") or f"line-{number}")
    run = RecordedRun(
        run_id=f"{instance}:{data.get('step_idx', 0)}:{number}",
        instance_id=instance,
        model="",
        trajectory=trajectory,
        patch="",
        tools=None,
        source=source,
        source_sha256=digest,
    )
    return CorpusRecord(
        run=run,
        message_index=len(history) + 1,
        kept=_kept(data["kept_frags"], count_lines(data["tool_response"])),
        reasoning=data.get("reasoning"),
    )


def _kept(numbers: Sequence[int], n_lines: int) -> BoolArray:
    kept = np.zeros(n_lines, dtype=bool)
    for number in numbers:
        if not 1 <= number <= n_lines:
            raise ValueError(f"line {number} is kept of an output with {n_lines} lines")
        kept[number - 1] = True
    return kept


def _message(data: Mapping[str, Any], before: Sequence[Message], tool: str) -> Message:
    role = str(data["role"])
    calls = tuple(
        ToolCall(
            id=str(call.get("id", f"call{len(before)}")),
            name=str(call["function"]["name"]),
            arguments=_arguments(call["function"].get("arguments")),
        )
        for call in data.get("tool_calls") or ()
    )
    content = data.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return Message(
        index=len(before),
        step_index=sum(m.role == "assistant" for m in before) + (role == "assistant"),
        role=role,
        content=text,
        tool_calls=calls,
        tool_call_id=data.get("tool_call_id"),
        tool=tool if role == "tool" else None,
        command=_command(before) if role == "tool" else None,
        n_lines=count_lines(text),
    )


def _command(before: Sequence[Message]) -> str | None:
    """Return the call that a tool message answers: its command, or its arguments as JSON."""
    calls = before[-1].tool_calls if before else ()
    if not calls:
        return None
    arguments = json.loads(calls[0].arguments)
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else calls[0].arguments


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value or {}, ensure_ascii=False)
