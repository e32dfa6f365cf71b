"""Benchmarks by name: their format, and where their rows come from."""

from importlib import import_module
from pathlib import Path
from typing import Any

from pipeline.benchmarks.format import BenchmarkFormat, ConfiguredFormat
from pipeline.benchmarks.rows import DatasetError, with_workdir
from pipeline.spec.sweep import BenchmarkSpec

BUILT_IN = "toy"


def format_names() -> list[str]:
    """Return the formats there are."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/format.py"))


def format_of(benchmark: BenchmarkSpec) -> BenchmarkFormat:
    """Return a benchmark's format.

    Raises:
        DatasetError: there is none of that name.
    """
    if benchmark.format not in format_names():
        known = ", ".join(format_names())
        raise DatasetError(
            f"benchmark.format: no format {benchmark.format!r} for {benchmark.name}; there are "
            f"{known}"
        )
    module = import_module(f"{__package__}.{benchmark.format}.format")
    found: BenchmarkFormat | ConfiguredFormat = module.FORMAT
    return found.configured(benchmark) if isinstance(found, ConfiguredFormat) else found


def benchmark_rows(benchmark: BenchmarkSpec) -> list[dict[str, Any]]:
    """Return the rows of a benchmark.

    Raises:
        DatasetError: no file was named, there is none, or its rows are not as they should be.
    """
    dataset = Path(benchmark.dataset) if benchmark.dataset else None
    if dataset is None and benchmark.format != BUILT_IN:
        raise DatasetError(
            f"no dataset file is named for benchmark {benchmark.name!r}; {_remedy(benchmark)}"
        )
    if dataset is not None and not dataset.exists():
        raise DatasetError(
            f"benchmark {benchmark.name!r} has no dataset at {dataset}; {_remedy(benchmark)}"
        )
    return with_workdir(format_of(benchmark).rows(dataset), benchmark.workdir)


def _remedy(benchmark: BenchmarkSpec) -> str:
    source, target = benchmark.source or "SOURCE", benchmark.dataset or "FILE.parquet"
    return (
        f"stage it: python -m pipeline.stage dataset {source} --to {target}, "
        "or give a file of its rows with dataset=PATH"
    )
