"""Oolong's rules for scoring an answer, from 0 to 1.

Source: "Oolong: Evaluating Long Context Reasoning and Aggregation Capabilities" (arXiv 2511.02817)
and its published scoring script; a test compares the two on a user's checkout. One rule differs: an
incomplete date scores 0 here, while the script completes it with the day on which it runs.
"""

import ast
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dateutil import parser as dates

COUNT_DECAY = 0.75
"""A count that is off by n scores this to the power of n."""
SHORT = 20
"""An answer below this many characters is taken whole."""
COMPARISONS = ("more common", "less common", "same frequency")


def score_of(row: Mapping[str, Any], answer: str) -> float:
    """Return the score of `answer`, 0 to 1, by the rules of the row's set (synth or real)."""
    return synth_score(row, answer) if row.get("answer_type") else real_score(row, answer)


def synth_score(row: Mapping[str, Any], answer: str) -> float:
    """Return the score on Oolong-synth: exact text, then comparisons, counts and dates.

    Args:
        row: with `answer` (a list literal of one item) and `answer_type`.
        answer: the agent's text; what follows its last colon counts.
    """
    gold, given = synth_gold(str(row["answer"])), synth_answer(answer)
    if given == str(gold):
        return 1.0
    if given in COMPARISONS:
        return float(given in str(gold))
    if row["answer_type"] == "ANSWER_TYPE.NUMERIC":
        return _count_score(_count(gold), _count(given))
    if row["answer_type"] == "ANSWER_TYPE.DATE":
        return float(_date(given) == gold)
    return 0.0


def synth_gold(text: str) -> Any:
    """Return the gold answer of a row of Oolong-synth: the one item of a list, or a date.

    Raises:
        ValueError, SyntaxError, IndexError: it is neither.
    """
    if "datetime" in text:
        return datetime.strptime(text, "[datetime.date(%Y, %m, %d)]")  # noqa: DTZ007 (dates only)
    return ast.literal_eval(text)[0]


def synth_answer(text: str) -> str:
    """Return the part of an answer that counts."""
    if ":" not in text:
        return text if len(text) < SHORT else text.split()[-1]
    said = re.sub(r"[*\[\]]", "", text.rpartition(":")[2].strip())
    if len(said) < SHORT:
        return said
    return next((words for words in COMPARISONS if words in said), said)


def real_score(row: Mapping[str, Any], answer: str) -> float:
    r"""Return the score on Oolong-real: a count, a text, or a list in `\boxed{...}`."""
    gold, given = real_answer(str(row["answer"])), _boxed(answer)
    match gold, given:
        case int(), int():
            return _count_score(gold, given)
        case str(), str():
            return float(gold.strip().lower() == given.strip().lower())
        case list(), list():
            return len(set(gold) & set(given)) / len(gold) if gold else 0.0
        case _:
            return 0.0


def real_answer(text: str) -> int | str | list[str]:
    """Return a count, the items of a list with commas, or the text itself."""
    number = _count(text)
    if number is not None:
        return number
    if "," in text:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def _boxed(text: str) -> int | str | list[str]:
    found = re.search(r"\\boxed\{\\text\{([^}]*)\}\}", text) or re.search(
        r"\\boxed\{+([^}]*)\}+", text
    )
    return real_answer(found[1]) if found else text


def _count(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _count_score(gold: int | None, given: int | None) -> float:
    if gold is None or given is None:
        return 0.0
    try:
        return float(COUNT_DECAY ** abs(gold - given))
    except OverflowError:
        return 0.0


def _date(text: str) -> datetime | None:
    """Return the date, or None where `text` is none or leaves the day, month or year open."""
    try:
        found = [dates.parse(text, default=datetime(*day)) for day in ((2000, 1, 1), (2001, 2, 2))]  # noqa: DTZ001
    except (ValueError, OverflowError, TypeError):
        return None
    return found[0] if found[0] == found[1] else None
