"""What the labelling model is asked, and how its answer is read.

It sees the call, the messages around it and the output with numbered lines (docs/methods.md,
SWE-Pruner Pro), and answers one JSON object with the ranges to keep. Pure: nothing is sent from
here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.judging.asking import AnswerError, json_in, number_in
from pipeline.linehead.samples import Sample
from pipeline.linehead.settings import JudgeSettings
from pipeline.views.kept_lines import BoolArray, split_lines
from pipeline.views.trajectory import Message

SYSTEM = """\
You label training data for a tool that shortens command outputs for a coding agent. You are shown
one command output of a recorded session, some messages before it and the messages that followed.
Decide for every line of the output whether the agent needs it for the rest of its task.

Keep a line if it informs a later decision: code that is changed, called or reasoned about, error
messages with their location, names and paths that matter. Drop repetition, listings of irrelevant
entries, progress, banners, and code that plays no part. What followed is evidence of what was
needed, but not the only evidence.

What stays must read as a skeleton of the output. With every kept line, also keep
- the def or class line that opens its block, and the brackets or braces that close it;
- the section header that it stands under;
- the path of the file that it is from.

Where you cannot tell what the agent needs, answer with confidence "skeleton" and keep the skeleton
alone: signatures, imports and block boundaries.

Answer with one JSON object and nothing else:
{"reasoning": "two or three sentences", "confidence": 0.0 to 1.0 or "skeleton",
 "keep": [[first, last], ...]}
Line numbers start at 1, ranges include both ends, and an empty list drops everything."""

SKELETON = "skeleton"
"""The confidence of an answer that keeps signatures, imports and block boundaries alone."""

_CUT = " [...] "


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A usable answer of the judge."""

    ranges: tuple[tuple[int, int], ...]
    """Kept lines, from 1, both ends included."""
    confidence: float | None
    """0 to 1; None where the judge could not tell and kept the skeleton alone."""
    reasoning: str

    def kept(self, n_lines: int) -> BoolArray:
        """Return the decision for each line."""
        kept = np.zeros(n_lines, dtype=bool)
        for first, last in self.ranges:
            kept[first - 1 : last] = True
        return kept


def judge_messages(sample: Sample, settings: JudgeSettings) -> list[dict[str, str]]:
    """Return the conversation that asks for the lines of one output."""
    messages = sample.run.trajectory.messages
    index = sample.message_index
    output = messages[index]
    before = messages[max(0, index - settings.messages_before) : index]
    after = messages_after(messages, index, settings)
    numbered = "".join(
        f"{number}: {line if line.endswith(chr(10)) else line + chr(10)}"
        for number, line in enumerate(split_lines(sample.text), start=1)
    )
    parts = [
        f"<before>\n{told(before, settings)}\n</before>",
        f"<command>\n{output.command or output.tool or 'unknown'}\n</command>",
        f"<output>\n{numbered}</output>",
        f"<after>\n{told(after, settings)}\n</after>",
        "Which lines are to be kept?",
    ]
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def parsed_answer(text: str, n_lines: int) -> Answer:
    """Return the answer in `text`.

    Raises:
        AnswerError: no JSON object, missing keys, or ranges that do not fit the output.
    """
    data = json_in(text)
    unsure = data.get("confidence") == SKELETON
    confidence = None if unsure else number_in(data, "confidence", 0, 1)
    if "keep" not in data:
        raise AnswerError("the key 'keep' is missing")
    return Answer(
        ranges=_ranges(data["keep"], n_lines),
        confidence=confidence,
        reasoning=str(data.get("reasoning", "")),
    )


def _ranges(data: object, n_lines: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(data, list):
        raise AnswerError("keep is no list of ranges")
    ranges = []
    for item in data:
        match item:
            case [int(first), int(last)] if not isinstance(first, bool) and first <= last:
                if first < 1 or last > n_lines:
                    raise AnswerError(f"range {item} is outside lines 1 to {n_lines}")
                ranges.append((first, last))
            case _:
                raise AnswerError(f"{json.dumps(item)} is no range [first, last] of line numbers")
    return tuple(sorted(ranges))


def messages_after(
    messages: Sequence[Message], index: int, settings: JudgeSettings
) -> Sequence[Message]:
    """Return what came next in the session, as much as a judge is shown."""
    return messages[index + 1 : index + 1 + settings.messages_after]


def told(messages: Sequence[Message], settings: JudgeSettings) -> str:
    """Return messages as a judge reads them, long texts cut in the middle."""
    return "\n".join(f"[{m.role}] {_words(m, settings.message_chars)}" for m in messages) or "-"


def _words(message: Message, limit: int) -> str:
    calls = [f"calls {c.name} {c.arguments}" for c in message.tool_calls]
    return "\n".join(_shortened(t, limit) for t in (message.content, *calls) if t)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = max(0, limit - len(_CUT)) // 2
    return text[:half] + _CUT + text[len(text) - half :]
