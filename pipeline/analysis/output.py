"""Writes result tables as CSV, Parquet and LaTeX; each file is whole or absent."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, Any]


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def write_table(rows: Sequence[Row], stem: Path) -> None:
    """Write `rows` as `stem`.csv and `stem`.parquet; NaN and None become empty cells.

    No rows give a CSV without lines, so that an empty finding is told from one never made.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    plain = [{name: _known(row.get(name)) for name in columns} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    replace_file(stem.with_suffix(".csv"), text.getvalue().encode())
    if rows:
        write_arrow(pa.Table.from_pylist(plain), stem.with_suffix(".parquet"))


def write_arrow(table: pa.Table, path: Path) -> None:
    """Write an Arrow table as Parquet; one without columns writes nothing."""
    if not table.num_columns:
        return
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    replace_file(path, bytes(sink.getvalue()))


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and isnan(value) else value


_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def latex_text(text: str) -> str:
    """Return `text` with everything escaped that LaTeX would read as a command."""
    return "".join(_LATEX_SPECIAL.get(char, char) for char in text)


def write_latex(
    header: Sequence[str], rows: Sequence[Sequence[str]], path: Path, *, caption: str, label: str
) -> None:
    """Write a booktabs table: first column left, the others right, no vertical rules."""
    lines = [
        r"\begin{table}[t]",
        r"\centering\footnotesize",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(latex_text(cell) for cell in header) + r" \\",
        r"\midrule",
        *(" & ".join(latex_text(cell) for cell in row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    replace_file(path, ("\n".join(lines) + "\n").encode())
