"""Rules that answer a policy's question where a recorded run has no answer.

A `sham_cleanup` run has the answers; other recordings do not, so the choice of outputs follows a
named rule and the lengths of answers are given. Rules that prune nothing or everything bound what
any answer could do.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.views import prune_tool
from pipeline.views.draws import uniform
from pipeline.views.policy import AuxReply, AuxRequest, CallKind, RequestedToolCall
from pipeline.views.references import refers
from pipeline.views.shown import acted_turns, output_ids
from pipeline.views.trajectory import Message, Trajectory

Rule = Callable[[Trajectory, dict[int, Message]], list[int]]
"""(trajectory, live outputs by id) -> ids to prune."""

UNUSED_TURNS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerLengths:
    """Completion tokens of answers that were never given."""

    cleanup_tokens: int = 300
    summary_tokens: int = 800
    compressed_share: float = 0.3
    """Of a step's tokens, what a model-written compression leaves."""


def _all(trajectory: Trajectory, live: dict[int, Message]) -> list[int]:  # noqa: ARG001
    return list(live)


def _none(trajectory: Trajectory, live: dict[int, Message]) -> list[int]:  # noqa: ARG001
    return []


def _half(trajectory: Trajectory, live: dict[int, Message]) -> list[int]:
    here = len(trajectory.messages)
    return [k for k in live if uniform(0, "half", here, k) < 0.5]


def _unused(trajectory: Trajectory, live: dict[int, Message]) -> list[int]:
    recent = acted_turns(trajectory)[-UNUSED_TURNS:]
    first = recent[0].assistant.index if recent else 0
    return [
        k
        for k, message in live.items()
        if message.index < first and not any(refers(turn, message) for turn in recent)
    ]


RULES: dict[str, Rule] = {"unused": _unused, "half": _half, "all": _all, "none": _none}
"""`unused`: what the last five turns did not refer to. `half`: each output with probability 1/2.
`all` and `none` bound the rest."""


def stand_in(
    request: AuxRequest,
    trajectory: Trajectory,
    *,
    rule: str,
    lengths: AnswerLengths,
) -> AuxReply:
    """Return an answer made by rule, as long as `lengths` says."""
    if request.kind is CallKind.CLEANUP:
        outputs = output_ids(trajectory)
        live = {number: outputs[number] for number in request.ids}
        arguments = json.dumps({"ids": RULES[rule](trajectory, live)})
        call = RequestedToolCall(id="stand-in", name=prune_tool.NAME, arguments=arguments)
        return AuxReply(
            kind=request.kind,
            content="",
            tool_calls=(call,),
            completion_tokens=lengths.cleanup_tokens,
        )
    if request.kind is CallKind.LINES:
        # No rule can tell what a pruner would keep: the outputs stay whole.
        return AuxReply(kind=request.kind, content="")
    if request.kind is CallKind.SUMMARY:
        tokens = lengths.summary_tokens
    else:
        asked = str((request.messages or ({},))[-1].get("content", ""))
        # Only the first part of the request is the output to shorten; a third is a fair guess.
        tokens = max(1, round(len(asked) / 3.6 * lengths.compressed_share))
    return AuxReply(
        kind=request.kind,
        content=_filler(tokens, len(trajectory.messages)),
        completion_tokens=tokens,
    )


def _filler(tokens: int, here: int) -> str:
    """Return a text of about so many tokens that differs from moment to moment."""
    return f"Notes at {here}:" + " note" * max(1, tokens - 4)
