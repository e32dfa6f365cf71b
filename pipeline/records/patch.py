"""Patches are bytes: how they travel as text, and how they lie in JSON and in a table.

A file name or a line of a patch may be in any encoding. In memory a patch is text in which each
byte that is no UTF-8 stands as a lone surrogate, as Python reads file names (`surrogateescape`), so
that `patch_bytes` gives back what was submitted. On disk nothing is replaced either: in JSON such a
patch is an object with its bytes in base64, in a table they are in a column of their own.
"""

import base64
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

_BASE64 = "base64"


def patch_text(data: bytes) -> str:
    """Return a patch as text that `patch_bytes` turns back into the same bytes."""
    return data.decode(errors="surrogateescape")


def patch_bytes(text: str) -> bytes:
    r"""Return the bytes of a patch.

    Half of a surrogate pair that stands for no byte, as foreign JSON may hold it, becomes its
    escape (`\ud83d`): visible, and no other file's name.
    """
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace")


def is_plain(text: str) -> bool:
    """Return whether a patch is UTF-8, so that its text is all there is to keep."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def patch_cells(column: str, text: str | None) -> dict[str, Any]:
    r"""Return a patch's cells in a table: as text, and as bytes where it is not UTF-8.

    The text has such bytes as `\xNN`, for people.
    """
    if text is None or is_plain(text):
        return {column: text, f"{column}_raw": None}
    data = patch_bytes(text)
    return {column: data.decode(errors="backslashreplace"), f"{column}_raw": data}


def patch_in(row: Mapping[str, Any], column: str = "patch") -> str | None:
    """Return the patch that `patch_cells` put into a row, or an older version of it."""
    raw: bytes | None = row.get(f"{column}_raw")
    text: str | None = row[column]
    return text if raw is None else patch_text(raw)


def _to_json(text: str | None) -> Any:
    if text is None or is_plain(text):
        return text
    return {_BASE64: base64.b64encode(patch_bytes(text)).decode()}


def _from_json(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get(_BASE64), str):
        return patch_text(base64.b64decode(value[_BASE64], validate=True))
    raise ValueError("a patch is text, or an object with its bytes in base64")


def _text_only(value: Any) -> str:
    text = _from_json(value)
    if text is None:
        raise ValueError("a patch is text, or an object with its bytes in base64")
    return text


Patch = Annotated[str, PlainValidator(_text_only), PlainSerializer(_to_json, when_used="json")]
"""A patch in a record; see the module."""
