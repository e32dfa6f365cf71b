"""What a row of SWE-bench's version 5 must have to be run and graded."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError, check_identities, place_of, read_rows

CLASSIC_COLUMNS = (
    "repo",
    "instance_id",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "version",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
)
"""What every SWE-bench row has had from the start, as far as we read it."""
V5_COLUMNS = ("image", "eval_script", "log_parser", "eval_type")
"""What version 5 added: with these a row can be graded without a table of repositories."""
TEST_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
TEXTS = tuple(c for c in (*CLASSIC_COLUMNS, *V5_COLUMNS) if c not in TEST_LISTS)
"""Columns that hold text."""
MAY_BE_EMPTY = ("patch", "test_patch", "version")
"""Texts without which a row can still be run and graded."""


def load_rows(path: Path) -> list[dict[str, Any]]:
    """Return the checked rows of a file, in its order; raises `DatasetError`."""
    rows = read_rows(path)
    check_rows(rows, source=str(path))
    return rows


def check_rows(rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
    """Raise `DatasetError` unless every row can be run and graded, each instance once."""
    for number, row in enumerate(rows, start=1):
        name = place_of(row, number, source)
        _check_columns(row, name)
        _check_values(row, name)
        for column in TEST_LISTS:
            _check_tests(row[column], f"{name}: {column}")
    check_identities(rows, source=source)


def _check_columns(row: Mapping[str, Any], name: str) -> None:
    missing = [column for column in CLASSIC_COLUMNS if row.get(column) is None]
    if missing:
        raise DatasetError(f"{name}: missing {', '.join(missing)}; is this a SWE-bench dataset?")
    missing = [column for column in V5_COLUMNS if not row.get(column)]
    if missing:
        raise DatasetError(
            f"{name}: missing {', '.join(missing)}. These are rows in the classic format; harness "
            "5 needs the rows of version 5. Fetch them with `python -m pipeline.stage dataset`, or "
            "give a file of such rows with dataset=PATH."
        )


def _check_values(row: Mapping[str, Any], name: str) -> None:
    wrong = [column for column in TEXTS if not isinstance(row[column], str)]
    if wrong:
        raise DatasetError(f"{name}: {', '.join(wrong)} must be text")
    empty = [c for c in TEXTS if c not in MAY_BE_EMPTY and not row[c].strip()]
    if empty:
        raise DatasetError(f"{name}: {', '.join(empty)} must not be empty")


def _check_tests(value: Any, place: str) -> None:
    try:
        tests = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise DatasetError(f"{place} is no JSON: {error}") from None
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise DatasetError(f"{place} must be a list of test names")
