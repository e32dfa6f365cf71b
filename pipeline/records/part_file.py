"""One table's rows of one journal as a Parquet file, written row group by row group.

A journal may hold more than fits into memory, so rows are written whenever enough have come
together. Owns the file until it is whole: a reader meets the old one or the new one.
"""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.host.files import Replacement
from pipeline.records.columns import Table
from pipeline.records.lock import REBUILD, damaged_files_named
from pipeline.records.rows import Row
from pipeline.records.schema import schema_of, table_of

ZSTD_LEVEL = 12
ROW_GROUP_BYTES = 64 << 20
"""Of text, before it is packed. Smaller files have one row group."""


class PartFile:
    """A part under way. As a context manager: left without `finish`, nothing has changed."""

    def __init__(self, table: Table, path: Path) -> None:
        self._table, self._path = table, path
        self._rows: list[Row] = []
        self._n_bytes = 0
        self._file: Replacement | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; those that came before may be written."""
        for row in rows:
            self._rows.append(row)
            self._n_bytes += sum(len(v) for v in row.values() if isinstance(v, str | bytes))
            if self._n_bytes >= ROW_GROUP_BYTES:
                self._write(self._buffered())

    def add_kept(self, run_ids: list[str]) -> None:
        """Add the rows of these runs from the file that this one replaces, if there is one."""
        if not run_ids or not self._path.exists():
            return
        wanted, schema = pa.array(run_ids, pa.string()), schema_of(self._table)
        with damaged_files_named(self._path, REBUILD), pq.ParquetFile(self._path) as old:
            for group in range(old.num_row_groups):
                table = old.read_row_group(group)
                table = table.filter(pc.is_in(table["run_id"], wanted))
                if table.num_rows:
                    self._write(self._buffered())
                    self._write(_as(schema, table))

    def finish(self) -> int | None:
        """Put the file in its place and return its size; None where there is nothing to say."""
        buffered = self._buffered()
        if self._writer is None and not buffered.num_rows and not self._path.exists():
            return None
        self._write(buffered, even_empty=self._writer is None)
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        return self._file.commit()

    def _buffered(self) -> pa.Table:
        rows, self._rows, self._n_bytes = self._rows, [], 0
        return table_of(self._table, rows)

    def _write(self, table: pa.Table, *, even_empty: bool = False) -> None:
        if not (table.num_rows or even_empty):
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Replacement(self._path)
            self._writer = pq.ParquetWriter(
                self._file.file, table.schema, compression="zstd", compression_level=ZSTD_LEVEL
            )
        self._writer.write_table(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.discard()


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Return rows that an older version wrote, with the columns that came later empty."""
    names = set(table.column_names)
    arrays = [
        table[field.name].cast(field.type)
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
