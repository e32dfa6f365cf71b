"""Patches as SWE-bench predictions: one `preds.json` a cell.

What the official harness (or sb-cli) reads: a JSON object, instance id -> model name, instance id
and patch. The name tells arm and seed apart, since the harness caches reports by model name. Runs
that failed on our side have no prediction: they are to be run again, not judged.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.host.files import replace_bytes
from pipeline.records.failure import FailureClass
from pipeline.records.layout import Layout, file_name
from pipeline.records.patch import patch_in
from pipeline.records.rows import Row

Predictions = dict[str, dict[str, str]]

_COLUMNS = ["agent", "model", "arm", "seed", "instance_id", "failure_class", "patch", "patch_raw"]


def cell_name(row: Row) -> str:
    """Return the name of a run's cell: agent, model, arm and seed."""
    return f"{row['agent']}__{row['model']}__{row['arm']}__s{row['seed']}"


def predictions_by_cell(layout: Layout) -> dict[str, Predictions]:
    """Return the predictions of every cell, by cell and instance."""
    cells: dict[str, Predictions] = {}
    path = layout.table_file("runs")
    # Tables that an older version wrote lack the columns that came later.
    columns = [name for name in _COLUMNS if name in pq.read_schema(path).names]
    rows = pq.read_table(path, columns=columns).to_pylist()
    for row in sorted(rows, key=lambda r: r["instance_id"]):
        if FailureClass(row["failure_class"]).is_infra:
            continue
        cell, instance = cell_name(row), row["instance_id"]
        cells.setdefault(cell, {})[instance] = {
            "model_name_or_path": cell,
            "instance_id": instance,
            "model_patch": patch_in(row) or "",
        }
    return cells


def write_predictions(layout: Layout, out: Path) -> list[Path]:
    """Write `CELL.preds.json` for every cell and return the files, each whole or absent."""
    paths = []
    for cell, predictions in sorted(predictions_by_cell(layout).items()):
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{file_name(cell)}.preds.json"
        replace_bytes(path, _json_bytes(predictions))
        paths.append(path)
    return paths


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return JSON; a byte of a patch that is no UTF-8 is its escape, as Python reads it back."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # Only escapes are ASCII-safe everywhere, and they stand for lone surrogates alone.
    return text.encode(errors="backslashreplace") + b"\n"
