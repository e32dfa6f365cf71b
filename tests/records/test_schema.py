from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from pipeline.fields.kept import Kept, kept_values
from pipeline.records.columns import PLAN, RUNS, TABLES, Column, columns_of
from pipeline.records.failure import GradeClass
from pipeline.records.plan import PLAN_SCHEMA
from pipeline.records.schema import (
    SCHEMA_VERSION,
    VERSION_KEY,
    check_version,
    records_page,
    schema_of,
    table_of,
)
from tests.records import freeze

PAGE = Path(__file__).parents[2] / "docs" / "records.md"


def test_published_columns_are_as_they_were_published() -> None:
    now = freeze.schemas()
    changed = [
        f"{table}.{name}: {was} -> {now.get(table, {}).get(name)}"
        for table, columns in freeze.golden().items()
        for name, was in columns.items()
        if now.get(table, {}).get(name) != was
    ]
    assert changed == [], "columns are never renamed or retyped; add one with another name"


def test_new_columns_are_published_with_the_golden_schema() -> None:
    assert freeze.schemas() == freeze.golden(), "run: python -m tests.records.freeze"


def test_the_page_in_docs_is_the_one_the_columns_make() -> None:
    assert PAGE.read_text() == records_page(), (
        "run: python -m pipeline.records.schema > docs/records.md"
    )


def test_every_column_is_named_once_and_explained() -> None:
    for table in (*TABLES.values(), PLAN):
        names = [c.name for c in table.columns]
        assert len(names) == len(set(names))
        assert all(c.doc for c in table.columns)


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """A record with a field of each kind."""

    kilograms: Annotated[float | None, Kept("On the scale", "kg")] = None
    kind: Annotated[GradeClass, Kept("Which")] = GradeClass.RESOLVED
    answer: Annotated[str, Kept("As JSON", json=True)] = "{}"
    hands: tuple[str, ...] = ()


def test_a_kept_field_is_a_column_with_its_type_unit_and_meaning() -> None:
    assert columns_of(Weighing) == (
        Column("kilograms", "float", "kg", "On the scale"),
        Column("kind", "string", "", "Which"),
        Column("answer", "json", "", "As JSON"),
    )


def test_a_kept_field_fills_its_column_and_others_do_not() -> None:
    cells = kept_values(Weighing(kilograms=2.5, hands=("left",)))
    assert cells == {"kilograms": 2.5, "kind": "resolved", "answer": "{}"}


def test_the_plan_has_the_documented_columns() -> None:
    assert {c.name for c in PLAN.columns} == set(PLAN_SCHEMA.names)


def test_a_row_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="table runs has no column tokens"):
        table_of(RUNS, [{"run_id": "r", "tokens": 1}])


def test_what_a_row_does_not_say_is_null() -> None:
    table = table_of(RUNS, [{"run_id": "r"}])
    assert table["cached_tokens"].to_pylist() == [None]


def test_tables_of_a_newer_version_are_refused() -> None:
    schema = schema_of(RUNS)
    check_version(schema, "here")
    newer = schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION + 1).encode()})
    with pytest.raises(ValueError, match="install the planprune that wrote it"):
        check_version(newer, "runs.parquet")
