"""The client's keys, so that no record holds them: not in an error, nor in what a command printed.

An agent that prints its environment prints the key with which it calls, and an upstream may repeat
a wrong one. Short words are left alone: those are the dummies of servers that want no key.
"""

import json
import re
from collections.abc import Iterable, Mapping

from pipeline.records.journal import RUN_JSON, json_of
from pipeline.records.run_record import RunRecord

MASK = "(key)"
MIN_CHARS = 12
_NAMES = ("auth", "key", "token", "cookie", "secret")


def secrets_in(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the words of the headers that hold keys."""
    held = [v for name, v in headers.items() if any(word in name.lower() for word in _NAMES)]
    words = {word for value in held for word in re.split(r"[\s;,=]+", value)}
    return frozenset(word for word in words if len(word) >= MIN_CHARS)


def without(secrets: Iterable[str], text: str) -> str:
    """Return the text with the mask in place of secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def masked_record(record: RunRecord, secrets: Iterable[str]) -> RunRecord:
    """Return the record without the secrets, wherever in it they are."""
    text = json_of(RUN_JSON, record).decode()
    # As JSON holds them; tool calls hold JSON within.
    written = [json.dumps(secret, ensure_ascii=False)[1:-1] for secret in secrets]
    masked = without({*written, *(json.dumps(word)[1:-1] for word in written)}, text)
    return record if masked == text else RUN_JSON.validate_json(masked)
