"""SWE-Pruner v1 (arXiv 2601.16746): a 0.6B reranker behind HTTP keeps what answers a question.

Speaks to the authors' server (`POST /prune`): question, text and threshold go there, the numbers of
the lines to keep come back. Their server also leaves out blank lines and closes gaps of one line in
the text that it returns; here only the numbers are used, and all pruners show removed lines alike.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.arms.swe_pruner import SwePruner
from pipeline.protocols import PrunerError
from pipeline.pruners.ranking import decisions
from pipeline.serving.connections import Connections, NotSentError, TransientError
from pipeline.views.kept_lines import BoolArray, count_lines, split_lines
from pipeline.views.policy import PruneRequest

TRIES = 3
CONNECT_TIMEOUT_S = 10.0


def load(spec: SwePruner, models: object) -> "SwePrunerClient":  # noqa: ARG001
    """Return the pruner of an arm's parameters; its model is in a server of its own."""
    return SwePrunerClient(spec)


class SwePrunerClient:
    """Asks a SWE-Pruner server."""

    def __init__(self, spec: SwePruner) -> None:
        """Connect to the server.

        Raises:
            PrunerError: nothing there answers that it is healthy.
        """
        if spec.url is None:
            raise PrunerError("swe_pruner has no url; give arms.ARM.policy.url=http://HOST:PORT")
        self._spec = spec
        try:
            self._server = Connections(spec.url, CONNECT_TIMEOUT_S, spec.timeout_s, None)
        except ValueError as error:
            raise PrunerError(f"no SWE-Pruner server answers at {spec.url}: {error}") from error
        self.check()

    def check(self) -> None:
        """Return if the server says that it is healthy.

        Raises:
            PrunerError: it does not.
        """
        try:
            status, _ = self._server.request("GET", "/health", None)
        except (NotSentError, TransientError) as error:
            raise PrunerError(
                f"no SWE-Pruner server answers at {self._spec.url}: {error}; start it again"
            ) from error
        if status != 200:
            raise PrunerError(
                f"the SWE-Pruner server at {self._spec.url} answers {status} to /health"
            )

    def prune(self, request: PruneRequest) -> list[bool] | None:
        """Return which lines stay; None where the agent asked nothing."""
        if request.query is None:
            return None
        body = {
            "query": request.query,
            "code": request.text,
            "threshold": self._spec.threshold,
            "always_keep_first_frags": False,
            "chunk_overlap_tokens": self._spec.chunk_overlap_tokens,
        }
        return decisions(kept_of(self._answer(json.dumps(body).encode()), request.text))

    def _answer(self, body: bytes) -> Mapping[str, Any]:
        problem = ""
        for _ in range(TRIES):
            try:
                status, data = self._server.post("/prune", body)
            except (NotSentError, TransientError) as error:
                problem = str(error)
                continue
            if status == 200:
                return _object(data)
            problem = f"HTTP {status}: {data[:200].decode('utf-8', 'replace')}"
            if status < 500:
                break
        raise PrunerError(f"the SWE-Pruner server at {self._spec.url} failed: {problem}")


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise PrunerError(f"the SWE-Pruner server's answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise PrunerError("the SWE-Pruner server's answer is no JSON object")
    return answer


def kept_of(answer: Mapping[str, Any], text: str) -> BoolArray:
    r"""Return which lines of `text` an answer keeps.

    The server ends lines wherever Python's `splitlines` does (at a carriage return or form feed,
    for instance) and ours end at ``\n`` only: a line stays if any part of it does.

    Raises:
        PrunerError: the server reports an error, or the numbers are none of this text.
    """
    if answer.get("error_msg"):
        raise PrunerError(f"the SWE-Pruner server says: {answer['error_msg']}")
    theirs = text.splitlines(keepends=True)
    numbers = answer.get("kept_frags")
    if not isinstance(numbers, list) or not all(
        type(n) is int and 1 <= n <= len(theirs) for n in numbers
    ):
        raise PrunerError(f"the SWE-Pruner server's kept_frags do not fit {len(theirs)} lines")
    ends = np.cumsum([len(line) for line in split_lines(text)])
    starts = np.cumsum([0, *[len(part) for part in theirs[:-1]]])
    kept = np.zeros(count_lines(text), dtype=bool)
    for number in numbers:
        kept[int(np.searchsorted(ends, starts[number - 1], side="right"))] = True
    return kept
