"""Writing every seed down twice is no evidence: no p value and no interval may move."""

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.result_tables import ALL_TABLES
from pipeline.analysis.study import opened_study
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import FOUNDING_ARMS, ArmTruth, SyntheticSweep
from pipeline.records.columns import TABLES
from pipeline.records.layout import Layout
from pipeline.spec.analysis import AnalysisPlan

SURE = re.compile(r"(_p|_low|_high)$")
"""Columns that hold a p value or an end of an interval."""


def with_every_seed_twice(results: Path, copy: Path) -> Path:
    """Copy a results folder; every run is there again, under another seed and id."""
    layout = Layout(Path(shutil.copytree(results, copy)))
    parts = [p for t in TABLES.values() for p in sorted(layout.table(t.name).glob("*.parquet"))]
    for path in (layout.plan, *parts):
        table = pq.read_table(path)
        if "run_id" in table.column_names:
            again = [_again(row) for row in table.to_pylist()]
            pq.write_table(
                pa.concat_tables([table, pa.Table.from_pylist(again, table.schema)]), path
            )
    return layout.root


def _again(row: dict[str, Any]) -> dict[str, Any]:
    row["run_id"] += "-again"
    if row.get("seed") is not None:
        row["seed"] += 100
    return row


def sure_cells(results: Path) -> dict[tuple[str, int, str], Any]:
    """Return every p value and end of an interval that analysis writes."""
    connection, study = opened_study(results)
    connection.close()
    return {
        (name, number, column): value
        for name, rows_of in ALL_TABLES.items()
        for number, row in enumerate(rows_of(study))
        for column, value in row.items()
        # How far seeds differ from each other is no interval of an effect.
        if SURE.search(column) and not column.startswith("seed_")
    }


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_no_p_value_and_no_interval_moves(seeds: tuple[int, ...], tmp_path: Path):
    grid = {
        f"delete_{rate}": ArmTruth(
            policy="deletion", parameters={"rate": rate / 100}, tokens=1 - rate / 200, prunes=True
        )
        for rate in (25, 75)
    }
    arms = {**FOUNDING_ARMS, **grid}
    sweep = SyntheticSweep(n_instances=40, seeds=seeds, mean_steps=15, seed=7, arms=arms)
    write_sweep(sweep, tmp_path / "once", plan=AnalysisPlan(resamples=500))
    once = sure_cells(tmp_path / "once")
    twice = sure_cells(with_every_seed_twice(tmp_path / "once", tmp_path / "twice"))
    assert len(once) > 200
    assert any(table == "grid_pairs" for table, *_ in once)
    assert twice == pytest.approx(once, nan_ok=True)
