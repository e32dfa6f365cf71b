"""The tool `prune_observations`: what an arm offers, and what the model's answer asks for.

Unusable parts of an answer are left out and reported, never raised: an unusable answer prunes
nothing. The cleanup turn decides when its call is forced.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.views.offered_tool import Answered, OfferedTool
from pipeline.views.trajectory import Trajectory

NAME = "prune_observations"

_IDS = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "Ids of the outputs to remove; empty to keep all of them.",
}
_NOTE = {
    "type": "string",
    "description": "Facts from the removed outputs that are still needed.",
}


def prune_tool(*, keeps_note: bool = False, asked: str | None = None) -> OfferedTool:
    """Return the tool of an arm.

    Args:
        keeps_note: whether the arm does anything with a note.
        asked: when the model is asked to use it, in words; None where it acts at any time.
    """
    when = (
        "You may use it in any answer."
        if asked is None
        else "Only for use when you are asked to clean up."
    )

    def answer(_: Trajectory, arguments: str) -> Answered:
        if asked is not None:
            text = (
                f"{NAME} can only be used when you are asked to clean up, which happens {asked}."
                " Nothing was changed; go on with the task."
            )
            return Answered(text=text, is_error=True)
        ids = answer_from_command(arguments).ids
        if not ids:
            return Answered(text="No output was named, so none is removed.")
        return Answered(text=f"Outputs named for removal: {', '.join(map(str, ids))}.")

    return OfferedTool(
        name=NAME,
        description=(
            "Remove earlier command outputs from what you see. Their text is replaced by a short"
            f" placeholder; your commands stay. {when}"
        ),
        properties={"ids": _IDS, "note": _NOTE} if keeps_note else {"ids": _IDS},
        required=("ids",),
        answer=answer,
    )


class Call(Protocol):
    """A tool call, as requested or as recorded."""

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def arguments(self) -> str:
        """JSON text, possibly malformed."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneAnswer:
    """What an answer asks to prune, before anyone checked that the ids exist."""

    ids: tuple[int, ...] = ()
    note: str = ""
    unusable: tuple[str, ...] = ()
    """What could not be read, in the model's own words, shortened."""


def ignored_in(answer: PruneAnswer, offered: Collection[int]) -> list[str]:
    """Return what cannot be used of an answer: ids that were not offered, and other words."""
    return [*(str(number) for number in answer.ids if number not in offered), *answer.unusable]


def tool_choice(mode: str) -> str | dict[str, Any]:
    """Return the request's `tool_choice` for `named`, `required` or `auto`."""
    if mode == "named":
        return {"type": "function", "function": {"name": NAME}}
    return mode


def prune_answer(content: str, calls: Sequence[Call]) -> PruneAnswer:
    """Return what an answer asks for.

    Tool calls count where there are any; without them a line `prune_observations 3 5 7` in the
    text does, which is how models without tool calls answer.
    """
    if not calls:
        return _from_text(content)
    ids: list[int] = []
    notes: list[str] = []
    unusable: list[str] = []
    for call in calls:
        if call.name != NAME:
            unusable.append(f"tool {call.name[:40]}")
            continue
        part = answer_from_arguments(call.arguments)
        ids += part.ids
        notes += [part.note] if part.note else []
        unusable += part.unusable
    return PruneAnswer(
        ids=tuple(dict.fromkeys(ids)), note=" ".join(notes), unusable=tuple(unusable)
    )


def answer_from_arguments(arguments: str) -> PruneAnswer:
    """Return what one call's JSON arguments ask for."""
    try:
        data = json.loads(arguments)
    except (ValueError, RecursionError):
        return PruneAnswer(unusable=(arguments[:80],))
    if not isinstance(data, dict) or not isinstance(data.get("ids"), list):
        return PruneAnswer(unusable=(arguments[:80],))
    read = [(item, _as_id(item)) for item in data["ids"]]
    note = data.get("note")
    return PruneAnswer(
        ids=tuple(dict.fromkeys(number for _, number in read if number is not None)),
        note=note.strip() if isinstance(note, str) else "",
        unusable=tuple(str(item)[:80] for item, number in read if number is None),
    )


def answer_from_command(command: str) -> PruneAnswer:
    """Return what a call in an ordinary turn asks for: JSON arguments, or the line as written."""
    if command.lstrip().startswith(NAME):
        return prune_answer(command, ())
    return answer_from_arguments(command)


def _as_id(item: object) -> int | None:
    if isinstance(item, bool):
        return None
    if isinstance(item, int):
        return item
    if isinstance(item, str) and re.fullmatch(r"\s*\[?[0-9]{1,9}\]?\s*", item):
        return int(item.strip().strip("[]"))
    return None


def _from_text(content: str) -> PruneAnswer:
    lines = re.findall(rf"^[ \t`>*]*{NAME}\b[ \t:(=]*([^\n]*)$", content, flags=re.MULTILINE)
    if not lines:
        return PruneAnswer(unusable=(content.strip()[:80],) if content.strip() else ())
    words = [w for line in lines for w in re.split(r"[\s,;()\[\]`*]+", line) if w]
    ids = [int(w) for w in words if re.fullmatch(r"[0-9]{1,9}", w)]
    other = tuple(w[:80] for w in words if not re.fullmatch(r"[0-9]{1,9}", w))
    return PruneAnswer(ids=tuple(dict.fromkeys(ids)), unusable=other)
