"""Arrow schemas of the tables, and the page that documents them.

Both are made from `columns`. Every file carries SCHEMA_VERSION; a reader that meets a newer one
says so instead of guessing. What the columns mean is not said here.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline.records.columns import PLAN, TABLES, Table
from pipeline.records.failure import FailureClass, GradeClass

SCHEMA_VERSION = 1
"""Raised when a reader of the old tables would misread the new ones; adding a column is no such."""

VERSION_KEY = b"planprune.schema_version"

_ARROW = {
    "string": pa.string(),
    "json": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
}


def schema_of(table: Table) -> pa.Schema:
    """Return the Arrow schema of `table`, with units as field metadata.

    Meanings stay out: they would be half of a small file.
    """
    fields = [
        pa.field(c.name, _ARROW[c.type], metadata={"unit": c.unit} if c.unit else None)
        for c in table.columns
    ]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


def table_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return `rows` as an Arrow table; a column that a row lacks is null.

    Raises:
        ValueError: a row has a key that is no column of the table.
    """
    schema = schema_of(table)
    known = set(schema.names)
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in rows:
        if not known.issuperset(row):
            unknown = ", ".join(sorted(set(row) - known))
            raise ValueError(
                f"table {table.name} has no column {unknown}: "
                "mark the record's field `Kept`, or add it to columns.py"
            )
        for name, values in columns.items():
            values.append(row.get(name))
    arrays = [pa.array(columns[f.name], type=f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def check_version(schema: pa.Schema, where: str) -> None:
    """Refuse a file that a newer version of this package wrote.

    Raises:
        ValueError: the file's schema version is unknown to this code.
    """
    stored = int((schema.metadata or {}).get(VERSION_KEY, b"0"))
    if stored > SCHEMA_VERSION:
        raise ValueError(
            f"{where} has schema version {stored}, this planprune reads up to {SCHEMA_VERSION}; "
            "install the planprune that wrote it (named in sweep.lock.yaml)"
        )


_HEAD = """# Records: every table and column

Made by `python -m pipeline.records.schema > docs/records.md` from the records' fields and
`pipeline/records/columns.py`.
Columns are added, never renamed. An empty cell is unknown (SQL null), never 0.

Workers write one append-only **journal** each (`journals/NAME.journal`): a checksummed frame per
finished run, per grade, per batch of server samples. `python -m pipeline.compact RESULTS` turns
journals into the **tables** below (`tables/NAME/*.parquet`, zstd). `runs`, `grades`,
`limit_grades`, `tools` and `superseded` are one file each and are replaced whole; the others have
one file a journal, which holds the rows of winning records only. Join on `runs`: a row whose
`run_id` is not in `runs` belongs to a compaction that has not been committed.

**Which record is the run's result.** A record is valid unless its failure class begins with
`infra_`. The winner is the valid record that is already in the tables, else the valid one with the
smallest `(finished_at, journal)`; without a valid one, the latest infrastructure failure. The
others are listed in `superseded`.

**`calls.view_edits`** is JSON with up to three keys. `edits`: the edits first in force at this
call, each `[message_index, part, text, reason]`; they stay in force for all later calls until one
for the same message and part replaces them. `transient`: edits for this call only (a cleanup
prompt). `messages`: a conversation of its own, sent instead of the view (a summary). Laying the
edits of calls 0..k over the first `message_count` messages gives exactly what call k sent;
`pipeline.records.rebuild.messages_of_call` does it.
"""

_TYPES = {
    "string": "text",
    "json": "JSON text",
    "int": "int64",
    "float": "float64",
    "bool": "bool",
    "bytes": "binary",
}


def records_page() -> str:
    """Return docs/records.md."""
    sections = [_HEAD, *(_section(table) for table in (*TABLES.values(), PLAN)), _endings()]
    return "\n".join(sections)


def _section(table: Table) -> str:
    lines = [f"## {table.name}", "", f"{table.doc} Written by: {table.writer}.", ""]
    lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{c.name}` | {_TYPES[c.type]} | {c.unit} | {c.doc} |" for c in table.columns]
    return "\n".join(lines) + "\n"


def _endings() -> str:
    runs = _listed([c.value for c in FailureClass])
    grades = _listed([c.value for c in GradeClass])
    return f"## Endings\n\nFailure classes of runs: {runs}.\n\nGrade classes: {grades}.\n"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    sys.stdout.write(records_page())
