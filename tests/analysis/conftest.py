"""Results folders for the tests of analysis: made up once, copied where a test damages one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep
from pipeline.records.layout import Layout
from pipeline.spec.analysis import AnalysisPlan

Edit = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole sweep: 24 instances, 2 seeds, 4 arms. Not to be changed."""
    results = tmp_path_factory.mktemp("pristine")
    sweep = SyntheticSweep(n_instances=24, seeds=(0, 1), mean_steps=25, seed=5)
    write_sweep(sweep, results, plan=AnalysisPlan(resamples=1000))
    return results


@pytest.fixture
def sweep(pristine: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(pristine, tmp_path / "sweep"))


def edit_table(results: Path, name: str, edit: Edit) -> None:
    """Rewrite a single-file table through its rows."""
    path = Layout(results).table_file(name)
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(edit(table.to_pylist()), schema=table.schema), path)
