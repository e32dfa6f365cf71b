"""Session logs with one JSON object a line, built piece by piece."""

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def write_lines(path: Path, lines: list[Line], *, torn: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    return path
