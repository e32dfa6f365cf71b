"""What a row of SWE-bench's version 5 must have to be run and graded."""

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError, check_identities, place_of, read_rows
from pipeline.plural import plural

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


EVAL_TYPES = ("pass_and_fail", "fail_only")
PARSERS = frozenset(
    f"parse_log_{name}"
    for name in (
        *("pytest", "pytest_options", "django", "pytest_v2", "seaborn", "sympy", "matplotlib"),
        *("astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray", "pydicom"),
        *("requests", "pylint", "astropy", "scikit", "sphinx", "calypso", "bpmn_js", "carbon"),
        *("eslint", "grommet", "highlightjs", "lighthouse", "next", "openlayers", "prismjs"),
        *("quarto_cli", "chart_js", "marked", "p5js", "react_pdf", "jest", "jest_json", "vitest"),
        *("karma", "tap", "immutable_js", "redis", "jq", "doctest", "micropython_test"),
        *("googletest", "gotest", "maven", "ant", "gradle_custom", "phpunit", "minitest"),
        *("cucumber", "ruby_unit", "rspec_transformed_json", "jekyll", "cargo"),
    )
)
"""The log parsers of the pinned harness, whose import takes seconds; a test compares the two."""


def load_rows(path: Path) -> list[dict[str, Any]]:
    """Return the checked rows of a file, in its order; raises `DatasetError`."""
    rows = read_rows(path)
    check_rows(rows, source=str(path))
    return rows


def check_rows(rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
    """Raise `DatasetError` unless every row can be run and graded, each instance once."""
    check_columns(rows, source=source)
    refuse_ungradable(rows, source=source)


def check_columns(rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
    """Raise `DatasetError` unless every row has what version 5 has, each instance once."""
    for number, row in enumerate(rows, start=1):
        name = place_of(row, number, source)
        _check_columns(row, name)
        _check_values(row, name)
        for column in TEST_LISTS:
            _check_tests(row[column], f"{name}: {column}")
    check_identities(rows, source=source)


def refuse_ungradable(rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
    """Raise `DatasetError`, with the count and the first rows, where patches cannot be graded."""
    refused = [
        f"{place_of(row, number, source)}: {reason}"
        for number, row in enumerate(rows, start=1)
        if (reason := ungradable(row)) is not None
    ]
    if refused:
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        raise DatasetError(
            f"{len(refused):,} of {plural(len(rows), 'row')} cannot be graded: "
            f"{'; '.join(refused[:5])}{more}. "
            "Leave them out: python -m pipeline.stage dataset FILE --to FOLDER --drop-ungradable"
        )


def ungradable(row: Mapping[str, Any]) -> str | None:
    """Return why the harness could say nothing about any patch for `row`; None where it can.

    Of a row without tests it would say that every patch resolves it.
    """
    if not any(_tests_in(row[column]) for column in TEST_LISTS):
        return f"it has no test, neither in {' nor in '.join(TEST_LISTS)}"
    if row["log_parser"] not in PARSERS:
        near = difflib.get_close_matches(row["log_parser"], sorted(PARSERS), n=3)
        hint = f"; the nearest are {', '.join(near)}" if near else ""
        return f"the harness has no log parser {row['log_parser']!r}{hint}"
    if row["eval_type"] not in EVAL_TYPES:
        return f"eval_type is {row['eval_type']!r} and not {' or '.join(EVAL_TYPES)}"
    return None


def _check_columns(row: Mapping[str, Any], name: str) -> None:
    if "test_cmds" in row and "eval_script" not in row:
        raise DatasetError(
            f"{name}: these are rows of SWE-bench-Live, whose rule the official harness does not "
            "have: a test that should go on passing and is not reported counts as a failure here, "
            "and not there. Bring them as Harbor's tasks, with a test script that has their rule"
        )
    missing = [c for c in CLASSIC_COLUMNS if c not in row or (row[c] is None and c != "version")]
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
    # Rows of benchmarks without releases have no version, and the harness does without.
    texts = [c for c in TEXTS if c != "version" or row[c] is not None]
    wrong = [column for column in texts if not isinstance(row[column], str)]
    if wrong:
        raise DatasetError(f"{name}: {', '.join(wrong)} must be text")
    empty = [c for c in texts if c not in MAY_BE_EMPTY and not row[c].strip()]
    if empty:
        raise DatasetError(f"{name}: {', '.join(empty)} must not be empty")


def _tests_in(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _check_tests(value: Any, place: str) -> None:
    try:
        tests = _tests_in(value)
    except json.JSONDecodeError as error:
        raise DatasetError(f"{place} is no JSON: {error}") from None
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise DatasetError(f"{place} must be a list of test names")
