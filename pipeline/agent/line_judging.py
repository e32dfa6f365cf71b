"""The arm's line pruner at work: what it said of new outputs, in the form in which it is kept.

Owns the JSON of a decision about lines: one entry an output, with the kept lines as ranges, or why
there are none. A pruner that fails costs the run nothing but the time: the output stays whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pipeline.protocols import LinePruner, PrunerError
from pipeline.records.json_columns import json_text
from pipeline.views.policy import AuxRequest, PruneRequest

MAX_ERROR_CHARS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What the pruner said of the outputs of one turn."""

    answer: str
    """JSON: `pruner` as asked for, and `outputs`, each with `message` and either `kept` or `error`.
    `kept` has first and last lines, from 1, or is null where there was no reason to prune."""
    wall_s: float


def judgement(
    request: AuxRequest, pruner: LinePruner | None, now: Callable[[], float]
) -> Judgement:
    """Return what `pruner` says of each output, failures included."""
    started_at = now()
    outputs = [_judge(output, pruner) for output in request.outputs]
    answer = {"pruner": request.pruner, "outputs": outputs}
    return Judgement(answer=json_text(answer), wall_s=now() - started_at)


def _judge(request: PruneRequest, pruner: LinePruner | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"message": request.message_index}
    if pruner is None:
        return entry | {"error": "the run has no line pruner"}
    try:
        kept = pruner.prune(request)
    except PrunerError as error:
        return entry | {"error": str(error)[:MAX_ERROR_CHARS]}
    return entry | {"kept": None if kept is None else list(_ranges(kept))}


def _ranges(kept: Sequence[bool]) -> Iterator[list[int]]:
    """Yield the first and last line of each run of kept ones, from 1."""
    for stays, group in groupby(range(len(kept)), key=lambda i: bool(kept[i])):
        if stays:
            lines = list(group)
            yield [lines[0] + 1, lines[-1] + 1]
