"""Writes tests/records/golden_schema.json: the columns that tables have been published with.

`python -m tests.records.freeze` adds new columns. What is there never changes: a column that means
something else gets another name.
"""

import json
from pathlib import Path

from pipeline.records.columns import PLAN, TABLES

GOLDEN = Path(__file__).parent / "golden_schema.json"

Schema = dict[str, dict[str, list[str]]]
"""Table to column to its type and unit."""


def schemas() -> Schema:
    """Return the columns of every table as they are now."""
    return {
        table.name: {c.name: [c.type, c.unit] for c in table.columns}
        for table in (*TABLES.values(), PLAN)
    }


def golden() -> Schema:
    """Return the columns that were published."""
    published: Schema = json.loads(GOLDEN.read_text())
    return published


def main() -> None:
    """Add the columns that are new."""
    published = golden() if GOLDEN.exists() else {}
    both = {name: {**now, **published.get(name, {})} for name, now in schemas().items()}
    lines = json.dumps({**published, **both}, sort_keys=True).replace("], ", "],\n  ")
    GOLDEN.write_text(lines.replace("}, ", "},\n ") + "\n")


if __name__ == "__main__":
    main()
