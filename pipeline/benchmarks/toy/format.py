"""The toy benchmark: rows in SWE-bench's format that are built here, with real git checkouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.benchmarks.swe_bench.format import SweBench
from pipeline.benchmarks.toy.checkout import materialise
from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.records.failure import SandboxError


class Toy(SweBench):
    """Rows that come with the package; a toy image holds what a repository needs, not it."""

    def checkout(self, row: Mapping[str, Any], target: Path) -> None:
        """Fill `target` with the row's repository."""
        if not str(row["repo"]).startswith("toy/"):
            raise SandboxError(
                f"{row['instance_id']}: {row['repo']} is no toy repository; say benchmark=NAME for "
                "the benchmark that its rows are of"
            )
        materialise(row, target)

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return all toy rows, or those of `dataset`."""
        return toy_rows() if dataset is None else load_rows(dataset)


FORMAT = Toy()
