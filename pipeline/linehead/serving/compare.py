"""Are a server's line scores those of Transformers? Asked in every way in which they could differ.

    python -m pipeline.linehead.serving.compare URL --model FOLDER --head FOLDER [--name NAME]

Run in an environment with PyTorch and Transformers, such as vLLM's own. Fresh prompts, prefix hits,
rewritten histories, several outputs in a turn and concurrent requests; exits with 1 where a score
is further off than the tolerance or missing. Needs PyTorch.
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.linehead.checkpoint import TrainedHead, load_head
from pipeline.linehead.lengths import length_bucket
from pipeline.linehead.serving.locate import located_outputs
from pipeline.views.kept_lines import OutputTokens, kept_text, split_lines
from pipeline.views.line_scores import LineScores, decoded, request_params

Chat = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One request: a conversation, and the outputs in it that are asked about."""

    name: str
    messages: Chat
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a case."""

    name: str
    n_tokens: int
    cached_tokens: int | None
    """None: none were, or the server does not say (--enable-prompt-tokens-details)."""
    max_difference: float
    """Inf where scores are missing."""
    extra_bytes: int
    problem: str = ""


class Reference:
    """The same scores from Transformers: one plain forward pass over the whole prompt."""

    def __init__(self, folder: Path, head: TrainedHead, dtype: torch.dtype) -> None:
        self._model = AutoModel.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._head = head.head

    def scores(self, ids: Sequence[int], texts: Sequence[str]) -> list[np.ndarray[Any, Any] | str]:
        """Return the scores of every text's tokens."""
        places = located_outputs(self._tokenizer, ids, texts)
        with torch.inference_mode():
            hidden = self._model(torch.tensor([list(ids)])).last_hidden_state[0]
            return [self._of(hidden, place) for place in places]

    def _of(self, hidden: Any, place: OutputTokens | str) -> np.ndarray[Any, Any] | str:
        if isinstance(place, str):
            return place
        bucket = torch.tensor(length_bucket(place.lines.n_lines))
        logits = self._head(hidden[place.start : place.end], bucket)
        return np.asarray(torch.sigmoid(logits).numpy(), dtype=np.float64)


def main(arguments: Sequence[str]) -> int:
    """Compare; return 0 if every score is within the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url", help="of the server, up to and including /v1")
    parser.add_argument("--model", type=Path, required=True, help="folder of the served model")
    parser.add_argument("--head", type=Path, required=True, help="folder of the served head")
    parser.add_argument("--name", default="model", help="the name it is served under")
    parser.add_argument("--dtype", default="float32", help="what the server computes in")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    options = parser.parse_args(arguments)
    reference = Reference(options.model, load_head(options.head), getattr(torch, options.dtype))
    asked = [*_in_a_row(options), *_at_once(options)]
    outcomes = [_compare(case, reply, reference) for case, reply in asked]
    for outcome in outcomes:
        cached = "-" if outcome.cached_tokens is None else outcome.cached_tokens
        print(
            f"{outcome.name:<34} {outcome.n_tokens:>5} scores, {cached:>5} prompt "
            f"tokens cached, off by {outcome.max_difference:.1e}, {outcome.extra_bytes} bytes "
            f"{outcome.problem}"
        )
    worst = max(o.max_difference for o in outcomes)
    print(f"largest difference {worst:.2e} (tolerance {options.tolerance:g})")
    return 0 if worst <= options.tolerance else 1


def _compare(case: Case, reply: dict[str, Any], reference: Reference) -> Outcome:
    params = reply.get("kv_transfer_params")
    expected = reference.scores(reply["prompt_token_ids"], case.texts)
    worst, n_tokens, problem = 0.0, 0, ""
    for found, truth in zip(decoded(params, case.texts), expected, strict=True):
        if not isinstance(found, LineScores) or isinstance(truth, str):
            worst, problem = float("inf"), str(found if isinstance(found, str) else truth)
            continue
        gap = np.abs(found.scores - truth)
        worst = max(worst, float(np.where(np.isnan(gap), np.inf, gap).max()))
        n_tokens += len(truth)
    details = reply["usage"].get("prompt_tokens_details")
    return Outcome(
        name=case.name,
        n_tokens=n_tokens,
        cached_tokens=None if details is None else details.get("cached_tokens") or 0,
        max_difference=worst,
        extra_bytes=len(json.dumps(params)),
        problem=problem,
    )


def _in_a_row(options: argparse.Namespace) -> list[tuple[Case, dict[str, Any]]]:
    return [(case, _sent(options, case, salt="row")) for case in cases_in_a_row()]


def _at_once(options: argparse.Namespace) -> list[tuple[Case, dict[str, Any]]]:
    cases = [
        Case(
            name=f"at once, {n}", messages=talk(text := output(40 + 17 * n, f"c{n}")), texts=[text]
        )
        for n in range(6)
    ]
    with ThreadPoolExecutor(len(cases)) as pool:
        replies = list(pool.map(lambda case: _sent(options, case, salt="once"), cases))
    return list(zip(cases, replies, strict=True))


def cases_in_a_row() -> list[Case]:
    """Return requests of which each meets the cache that the ones before left."""
    first, second, third = (output(n, f"o{n}") for n in (30, 55, 12))
    kept = kept_text(first, [i % 3 == 0 for i in range(len(split_lines(first)))])
    return [
        Case(name="fresh", messages=talk(first), texts=[first]),
        Case(name="next turn", messages=talk(first, second), texts=[second]),
        Case(name="an older, cached output too", messages=talk(first, second, third),
             texts=[first, second, third]),
        Case(name="the same again", messages=talk(first, second, third), texts=[third]),
        Case(name="rewritten history", messages=talk(kept, second, third), texts=[second, third]),
        Case(name="two outputs in a turn", messages=talk(kept, (second, third)),
             texts=[second, third]),
        Case(name="the same text twice", messages=talk(third, third), texts=[third, third]),
    ]  # fmt: skip


def talk(*turns: str | tuple[str, ...]) -> Chat:
    """Return a conversation whose turns had these outputs."""
    messages: Chat = [
        {"role": "system", "content": "You fix bugs with bash."},
        {"role": "user", "content": "Find the bug in the parser."},
    ]
    for number, turn in enumerate(turns):
        outputs = (turn,) if isinstance(turn, str) else turn
        ids = [f"call_{number}_{i}" for i in range(len(outputs))]
        arguments = json.dumps({"command": f"cat part{number}.py"})
        messages.append(
            {
                "role": "assistant",
                "content": f"Looking at part {number}.",
                "tool_calls": [
                    {"id": i, "type": "function",
                     "function": {"name": "bash", "arguments": arguments}}
                    for i in ids
                ],
            }
        )  # fmt: skip
        messages += [
            {"role": "tool", "tool_call_id": i, "content": text}
            for i, text in zip(ids, outputs, strict=True)
        ]
    return messages


def output(n_lines: int, word: str) -> str:
    """Return an output with code, blank lines, CRLF and characters of several bytes."""
    kinds = (
        "def {w}_{i}(value):\n", "    return value * {i}  # {w}\n", "\n", "\n",
        "{i}: naïve ☃ 漢字 🙂\r\n",
        "src/{w}/module_{i}.py:{i}: warning\n", "\t\t{{'{w}': {i}}}\n",
    )  # fmt: skip
    return "".join(kinds[i % len(kinds)].format(w=word, i=i) for i in range(n_lines))


def _sent(options: argparse.Namespace, case: Case, *, salt: str) -> dict[str, Any]:
    body = {
        "model": options.name,
        "messages": case.messages,
        "max_tokens": 3,
        "temperature": 0,
        "return_token_ids": True,
        "cache_salt": salt,
        "kv_transfer_params": request_params(case.texts),
    }
    request = urllib.request.Request(
        options.url.rstrip("/") + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=600) as response:
        reply: dict[str, Any] = json.load(response)
    return reply


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
