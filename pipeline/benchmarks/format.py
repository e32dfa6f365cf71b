"""The seam for benchmarks: what a kind of rows is, and how its runs are graded.

A format is a package here whose module `format` has an object `FORMAT`; a benchmark names its
format in conf/benchmark. docs/adding-a-benchmark.md has the steps.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pipeline.grading.evaluation import EvalSite, OpenSandbox
from pipeline.grading.verdict import Grade
from pipeline.spec.sweep import BenchmarkSpec

Row = Mapping[str, Any]
Checkout = Callable[[Row, Path], None]
"""Fills an empty folder with a row's repository."""


class Grader(Protocol):
    """Says whether what a run submitted solves its instance."""

    @property
    def scored(self) -> bool:
        """Whether its grades have a score between solved and not."""
        ...

    def version(self, row: Row) -> str:
        """Return what names the rules of grading; grades of two versions are never mixed.

        Where a row brings rules of its own, such as its tests, their hash stands behind a colon:
        what is before it is the same for all rows.
        """
        ...

    def prepare(self) -> None:
        """Do once, before the first grading, what takes long, such as imports."""
        ...

    def gold(self, row: Row, start: OpenSandbox) -> str:
        """Return the submission that is known to be right.

        `start` gives a fresh sandbox of the row, for one that is made and not kept. Raises as
        `grade`.
        """
        ...

    def grade(
        self, row: Row, patch: str, start: OpenSandbox, site: EvalSite, *, timeout_s: float
    ) -> Grade:
        """Return the grade of a submission that is not empty.

        Args:
            row: the instance.
            patch: what was submitted.
            start: gives a fresh sandbox of the row for each `with`.
            site: what an evaluation can fetch here.
            timeout_s: limit of one evaluation.

        Raises:
            SandboxError, DiskError: our side failed, and nothing is known about the submission.
        """
        ...


class BenchmarkFormat(Protocol):
    """One kind of benchmark."""

    @property
    def checkout(self) -> Checkout | None:
        """How a repository gets into a sandbox; None where the row's image holds it."""
        ...

    @property
    def grader(self) -> Grader:
        """How its runs are graded."""
        ...

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return the rows of `dataset`, or those that come with the package.

        A row has `instance_id`, `repo` and `problem_statement`, `image` where it needs one, and
        what the grader reads. Raises `DatasetError`.
        """
        ...

    def check(self, rows: Sequence[Row], *, source: str) -> None:
        """Raise `DatasetError` unless every row can be run and graded."""
        ...


@runtime_checkable
class ConfiguredFormat(Protocol):
    """A format that depends on more of a benchmark's configuration than the rows."""

    def configured(self, benchmark: BenchmarkSpec) -> BenchmarkFormat:
        """Return the format for this benchmark. Nothing is opened or asked yet."""
        ...
