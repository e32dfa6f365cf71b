"""The small pieces of a text of which some are taken out."""

import re

_UNITS = re.compile(r"\s*(?:\w{1,8}|[^\w\s])|\s+")
"""Stands for a tokenizer's tokens: the source says tokens, and no vocabulary is at hand here."""


def units_of(text: str) -> list[str]:
    """Return the small pieces that stand for a text's tokens; joined, they are the text."""
    return _UNITS.findall(text)
