"""Benchmarks by name: where their rows come from.

Owns the difference between a benchmark that is part of the package and one that is a file.
"""

from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError, load_rows
from pipeline.benchmarks.toy.rows import toy_rows

BUILT_IN = "toy"
_REMEDY = (
    "stage it with `python -m pipeline.stage dataset SOURCE --to data`, "
    "or give a file of SWE-bench v5 rows with dataset=PATH"
)


def benchmark_rows(name: str, dataset: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a benchmark.

    Args:
        name: `toy`, whose rows are built here, or any other, whose rows are in a file.
        dataset: the file; None for `toy`.

    Raises:
        DatasetError: no file was named, there is none, or its rows are not as they should be.
    """
    if name == BUILT_IN and dataset is None:
        return toy_rows()
    if dataset is None:
        raise DatasetError(f"no dataset file is named for benchmark {name!r}; {_REMEDY}")
    if not dataset.exists():
        raise DatasetError(f"benchmark {name!r} has no dataset at {dataset}; {_REMEDY}")
    return load_rows(dataset)
