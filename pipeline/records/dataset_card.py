"""The README of a dataset folder: a card that the hub's viewer and a reader both understand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from pipeline.records.columns import TABLES
from pipeline.records.layout import Layout


def dataset_card(layout: Layout, names: Iterable[str]) -> str:
    """Return the card of a dataset with the tables `names` under `data/`.

    Says what the runs are, how many, of which evidence, and where the columns are explained.
    """
    tables = list(names)
    facts = _facts(layout)
    header: Mapping[str, Any] = {
        "pretty_name": f"planprune: {facts['sweep']}",
        "tags": ["agents", "code", "context-management", *facts["evidence"]],
        "configs": [
            {
                "config_name": name,
                "data_files": f"data/{name}/*.parquet",
                **({"default": True} if name == "runs" else {}),
            }
            for name in tables
        ],
    }
    listed = "\n".join(f"| `{name}` | {TABLES[name].doc} |" for name in tables)
    return f"""---
{yaml.safe_dump(dict(header), sort_keys=False)}---

# {facts["sweep"]}

Runs of coding agents under {len(facts["arm"])} context strategies, recorded by planprune: every
message, every call with its token counts, every edit of what the model was shown, and the grades.

- evidence: **{_joined(facts["evidence"])}** (`live`: a real model; `sim`: a simulated agent;
  `synthetic`: made-up numbers; they must not be mixed)
- runs: {facts["n_runs"]}; instances: {len(facts["instance_id"])}, of {_joined(facts["benchmark"])}
- models: {_joined(facts["model"])}
- arms: {_joined(facts["arm"])}
- seeds: {_joined(facts["seed"])}

| table | rows |
|---|---|
{listed}

Join on `runs.run_id`. `records.md` explains every column, and how `calls.view_edits` with
`messages` gives the exact messages of any call. Repositories' code inside the messages keeps the
licence it has there.
"""


def _facts(layout: Layout) -> dict[str, Any]:
    columns = ["sweep", "evidence", "benchmark", "model", "arm", "seed", "instance_id"]
    table = pq.read_table(layout.table_file("runs"), columns=columns)
    facts: dict[str, Any] = {name: sorted(set(table[name].to_pylist())) for name in columns}
    facts["sweep"] = _joined(facts["sweep"]) or layout.root.resolve().name
    facts["n_runs"] = table.num_rows
    return facts


def dataset_files(layout: Layout) -> dict[str, list[Path]]:
    """Return the Parquet files of every table that has rows."""
    found: dict[str, list[Path]] = {}
    for name in TABLES:
        files = sorted(layout.table(name).glob("*.parquet"))
        if sum(pq.ParquetFile(path).metadata.num_rows for path in files):
            found[name] = files
    return found


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(str(value) for value in values)
