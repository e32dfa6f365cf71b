"""SWE-bench's rows of version 5, from a file, graded by the official harness in their images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.format import Checkout
from pipeline.benchmarks.rows import DatasetError
from pipeline.benchmarks.swe_bench.columns import check_rows, load_rows
from pipeline.grading.evaluation import EvalSite, OpenSandbox, evaluate
from pipeline.grading.harness import harness_version, official
from pipeline.grading.verdict import Grade


class OfficialGrader:
    """The official harness."""

    scored = False

    def version(self, row: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return the harness's version."""
        return harness_version()

    def prepare(self) -> None:
        """Import the harness, which takes seconds."""
        official()

    def gold(self, row: Mapping[str, Any], start: OpenSandbox) -> str:  # noqa: ARG002
        """Return the row's own patch."""
        return str(row["patch"])

    def grade(
        self,
        row: Mapping[str, Any],
        patch: str,
        start: OpenSandbox,
        site: EvalSite,
        *,
        timeout_s: float,
    ) -> Grade:
        """Return the official grade, from the first environment that could be installed."""
        return evaluate(row, patch, start, site, timeout_s=timeout_s)


class SweBench:
    """Rows of a file."""

    checkout: Checkout | None = None
    grader = OfficialGrader()

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return the rows of `dataset`."""
        if dataset is None:
            raise DatasetError("no dataset file is named")
        return load_rows(dataset)

    def check(self, rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
        """Raise `DatasetError` unless every row has the columns of version 5."""
        check_rows(rows, source=source)


FORMAT = SweBench()
