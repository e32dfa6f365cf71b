"""Texts with some tokens left out, for rules that delete a share of the tokens.

Tokens are those of the run's tokenizer. Where there is none (the counter estimates by length),
small pieces of about a token's length stand for them.
"""

import re
from collections.abc import Callable, Collection

from pipeline.views.policy import TokenCounter, Tokenizer

_UNITS = re.compile(r"\s*(?:\w{1,8}|[^\w\s])|\s+")


def thinned(text: str, counter: TokenCounter, chosen: Callable[[int], Collection[int]]) -> str:
    """Return `text` with only the tokens at the places that `chosen` returns for their number."""
    if isinstance(counter, Tokenizer):
        return counter.thinned(text, chosen)
    units = units_of(text)
    kept = chosen(len(units))
    return "".join(unit for place, unit in enumerate(units) if place in kept)


def units_of(text: str) -> list[str]:
    """Return the small pieces that stand for a text's tokens; joined, they are the text."""
    return _UNITS.findall(text)
