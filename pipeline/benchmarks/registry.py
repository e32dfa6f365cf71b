"""Benchmarks by name: where their rows come from.

Owns the difference between a benchmark that is part of the package and one that is a file.
"""

from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError, load_rows
from pipeline.benchmarks.toy.rows import toy_rows

BUILT_IN = "toy"


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
        raise DatasetError(f"no dataset file is named for benchmark {name!r}; {_remedy(name)}")
    if not dataset.exists():
        raise DatasetError(f"benchmark {name!r} has no dataset at {dataset}; {_remedy(name)}")
    return load_rows(dataset)


def _remedy(name: str) -> str:
    return (
        f"fetch it with `python -m pipeline.stage dataset benchmark={name}`, "
        "or give a file of SWE-bench v5 rows with dataset=PATH"
    )
