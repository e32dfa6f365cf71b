"""The tables of a results folder as DuckDB views, whatever of them exists.

Missing tables are empty ones with their columns, missing columns are null: a folder without
grades, or one written before a column was added, reads like any other. Nothing is loaded here;
queries stream from Parquet.

Views: every table of docs/records.md under its name, `plan`, and three that everything else uses:
`done` (runs that ended by themselves, which judge an arm), `verdicts` (their grades, stale ones
left out) and `ended_arms` (arms of which no more runs are made).
"""

import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from pipeline.records.columns import PLAN, TABLES, Table
from pipeline.records.ended_arms import ended_arms
from pipeline.records.layout import Layout
from pipeline.records.lock import REBUILD, RESTORE, damaged_files_named
from pipeline.records.schema import check_version

_SQL_TYPES = {
    "string": "VARCHAR",
    "json": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "bytes": "BLOB",
}

_MEMORY_LIMIT = "1500MB"
"""Beyond this DuckDB spills to disk, below the folder for temporary files; the rest of a process's
memory is for what is worked out of its answers."""

_DERIVED = """
CREATE VIEW done AS SELECT * FROM runs WHERE failure_class NOT LIKE 'infra%';
CREATE VIEW verdicts AS
  SELECT g.* FROM grades g JOIN done r USING (run_id)
  WHERE coalesce(g.patch_sha256, '') = coalesce(r.patch_sha256, '');
"""


def open_tables(results: Path) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB with one view for each table of the results folder.

    Raises:
        ValueError: a file was written by a newer version of this package.
    """
    layout = Layout(results)
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
    # Made when it is needed, and gone with the connection.
    spill = Path(tempfile.gettempdir(), f"planprune-{os.getpid()}-{secrets.token_hex(4)}.duckdb")
    connection.execute(f"SET temp_directory = {_quoted(str(spill))}")
    connection.execute("SET preserve_insertion_order = false")
    for table in TABLES.values():
        files = sorted(layout.table(table.name).glob("*.parquet"))
        connection.execute(view_sql(table, files))
    plan_files = [layout.plan] if layout.plan.exists() else []
    connection.execute(view_sql(PLAN, plan_files))
    connection.execute("CREATE TABLE ended_arms (arm VARCHAR, ended_at VARCHAR)")
    for ended in ended_arms(layout).items():
        connection.execute("INSERT INTO ended_arms VALUES (?, ?)", ended)
    connection.execute(_DERIVED)
    return connection


def view_sql(table: Table, files: Sequence[Path]) -> str:
    """Return the statement that makes `table` a view over `files`."""
    return f'CREATE VIEW "{table.name}" AS {select_sql(table, files)}'


def select_sql(table: Table, files: Sequence[Path]) -> str:
    """Return the query for all of `table` in `files`, with every column it is known to have.

    Raises:
        ValueError: a file was written by a newer version of this package.
    """
    stored: set[str] = set()
    for path in files:
        with damaged_files_named(path, RESTORE if table is PLAN else REBUILD):
            schema = pq.read_schema(path)
        check_version(schema, str(path))
        stored |= set(schema.names)
    columns = [
        f'"{c.name}"' if c.name in stored else f'CAST(NULL AS {_SQL_TYPES[c.type]}) AS "{c.name}"'
        for c in table.columns
    ]
    known = {c.name for c in table.columns}
    columns += [f'"{name}"' for name in sorted(stored - known)]
    listed = ", ".join(_quoted(str(path)) for path in files)
    source = f"FROM read_parquet([{listed}], union_by_name = true)" if files else "WHERE false"
    return f"SELECT {', '.join(columns)} {source}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def count_in(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    """Return the number that `query` selects."""
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0
