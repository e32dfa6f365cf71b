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
from pipeline.records.rows import Row

Predictions = dict[str, dict[str, str]]

_COLUMNS = ["agent", "model", "arm", "seed", "instance_id", "failure_class", "patch"]


def cell_name(row: Row) -> str:
    """Return the name of a run's cell: agent, model, arm and seed."""
    return f"{row['agent']}__{row['model']}__{row['arm']}__s{row['seed']}"


def predictions_by_cell(layout: Layout) -> dict[str, Predictions]:
    """Return the predictions of every cell, by cell and instance."""
    cells: dict[str, Predictions] = {}
    rows = pq.read_table(layout.table_file("runs"), columns=_COLUMNS).to_pylist()
    for row in sorted(rows, key=lambda r: r["instance_id"]):
        if FailureClass(row["failure_class"]).is_infra:
            continue
        cell, instance = cell_name(row), row["instance_id"]
        cells.setdefault(cell, {})[instance] = {
            "model_name_or_path": cell,
            "instance_id": instance,
            "model_patch": row["patch"] or "",
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
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
