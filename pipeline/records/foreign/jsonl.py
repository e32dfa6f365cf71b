"""Logs with one JSON object a line, read a line at a time: a torn last line ends nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def objects_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of the file; lines that hold none are passed over.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as lines:
        for line in lines:
            try:
                # Bytes that are no UTF-8 and bare control characters come from outputs of commands.
                text = line.decode("utf-8", "replace").lstrip("\ufeff")
                found = json.loads(text, strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found
