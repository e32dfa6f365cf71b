"""The protocol between an agent and a server with a line head: the question and the answer.

A request names the texts of the outputs that are new in its prompt; the response holds one score
per token, and the line that each token is on. Plain JSON both ways, in the field that vLLM passes
through for connectors. Neither vLLM nor PyTorch is needed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.views.kept_lines import FloatArray, TokenLines, count_lines

FIELD = "line_scores"
"""The key in `kv_transfer_params`, of request and response."""

DIGITS = 4
"""Decimals of a score on the wire."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineScores:
    """The head's scores of one output."""

    scores: FloatArray
    lines: TokenLines


def request_params(texts: Sequence[str]) -> dict[str, Any]:
    """Return the `kv_transfer_params` that ask for scores of `texts`, in prompt order."""
    return {FIELD: {"texts": list(texts)}}


def wanted_texts(params: Mapping[str, Any] | None) -> list[str]:
    """Return the texts that a request asks about; empty where it asks nothing or is malformed."""
    wanted = (params or {}).get(FIELD)
    texts = wanted.get("texts") if isinstance(wanted, Mapping) else None
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        return []
    return texts


def encoded(scores: Sequence[float], lines: TokenLines) -> dict[str, Any]:
    """Return the answer about one output.

    Tokens are in order, so lines are given by how many tokens begin on each; the few tokens that
    reach into a later line are listed separately.
    """
    across = np.flatnonzero(lines.last > lines.first)
    return {
        "scores": [None if np.isnan(s) else round(float(s), DIGITS) for s in scores],
        "begin": np.bincount(lines.first, minlength=lines.n_lines).tolist(),
        "across": [[int(i), int(lines.last[i])] for i in across],
    }


def response_params(
    answers: Sequence[Mapping[str, Any]], n_errors: int, *, head_s: float | None = None
) -> dict[str, Any]:
    """Return the `kv_transfer_params` of the response.

    Args:
        answers: One per text, from `encoded`, or `{"error": reason}`.
        n_errors: Outputs that this server could not score since it started.
        head_s: Time that the head took in this request's steps; None where it was not measured.
    """
    head_ms = None if head_s is None else round(1000 * head_s, 3)
    return {FIELD: {"outputs": list(answers), "n_errors": n_errors, "head_ms": head_ms}}


def decoded(params: Mapping[str, Any] | None, texts: Sequence[str]) -> list[LineScores | str]:
    """Return for each text its scores, or the reason why there are none.

    A server without a head, or with one that failed, leads to reasons and not to an exception: an
    output without scores stays unpruned.
    """
    found = (params or {}).get(FIELD)
    outputs = found.get("outputs") if isinstance(found, Mapping) else None
    if not isinstance(outputs, list) or len(outputs) != len(texts):
        return ["the server sent no line scores; is it started with a line head?"] * len(texts)
    return [_decoded(output, text) for output, text in zip(outputs, texts, strict=True)]


def n_without_scores(params: Mapping[str, Any] | None, n_texts: int) -> int:
    """Return for how many of `n_texts` outputs a server's answer brings no scores."""
    found = (params or {}).get(FIELD)
    outputs = found.get("outputs") if isinstance(found, Mapping) else None
    if not isinstance(outputs, list) or len(outputs) != n_texts:
        return n_texts
    return sum(not isinstance(output, Mapping) or "scores" not in output for output in outputs)


def _decoded(output: Any, text: str) -> LineScores | str:
    if not isinstance(output, Mapping) or "scores" not in output:
        reason = output.get("error") if isinstance(output, Mapping) else None
        return str(reason or "the server's answer is not understood")
    begin = np.array(output["begin"], dtype=np.int64)
    first = np.repeat(np.arange(len(begin)), begin)
    if len(begin) != count_lines(text) or len(first) != len(output["scores"]):
        return "the server's answer is about another text"
    last = first.copy()
    for token, line in output["across"]:
        last[token] = line
    scores = np.array([np.nan if s is None else s for s in output["scores"]], dtype=np.float64)
    return LineScores(scores=scores, lines=TokenLines(first=first, last=last, n_lines=len(begin)))
