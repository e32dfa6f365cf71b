"""SWE-QA and SWE-QA-Pro: questions about a repository at a commit, graded by a judge.

A row names a repository and a commit; `benchmark.trees` has clones of them. The judge
(`benchmark.judge`) is part of the harness version, so grades of two judges are never mixed.
"""

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError, check_identities, place_of, read_rows
from pipeline.benchmarks.swe_qa.judging import DIMENSIONS, PROMPT_SHA256, question_of, score_of
from pipeline.benchmarks.swe_qa.trees import copy_tree
from pipeline.grading.evaluation import EvalSite, OpenSandbox
from pipeline.grading.verdict import Grade, infra_failed, of_answer
from pipeline.host.environment import environment
from pipeline.judging.asking import Asker
from pipeline.judging.endpoint import NoJudgeError, judge_completer
from pipeline.records.failure import SandboxError
from pipeline.spec.judge import JudgeSpec
from pipeline.spec.sweep import BenchmarkSpec

IMAGE = "python:3.12-bookworm"
"""What commands run in, for rows without an `image` of their own."""
COLUMNS = ("repo", "question", "answer")


@dataclass(frozen=True, kw_only=True)
class JudgeGrader:
    """A strong model that compares answers with the reference."""

    judge: JudgeSpec = field(default_factory=JudgeSpec)
    scored = True

    def version(self, row: Mapping[str, Any]) -> str:  # noqa: ARG002 (one for all rows)
        """Return what names the judge and its prompt."""
        judge = self.judge
        return f"judge {judge.model} T={judge.temperature:g} prompt {PROMPT_SHA256[:8]}"

    @cached_property
    def asker(self) -> Asker:
        """The judge with its budget and journal; raises `NoJudgeError`."""
        if self.judge.journal is None:
            raise NoJudgeError("benchmark.judge.journal: name a folder for the judge's answers")
        folder = Path(self.judge.journal)
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(folder.glob("*.jsonl"))
        own = folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        return Asker(self.judge, judge_completer(self.judge, environment()), own, others)

    def prepare(self) -> None:
        """Read the answers that are paid for; raises `NoJudgeError`."""
        _ = self.asker

    def gold(self, row: Mapping[str, Any], start: OpenSandbox) -> str:  # noqa: ARG002
        """Return the reference itself."""
        return str(row["answer"])

    def grade(
        self,
        row: Mapping[str, Any],
        patch: str,
        start: OpenSandbox,  # noqa: ARG002 (a judge needs no sandbox)
        site: EvalSite,  # noqa: ARG002
        *,
        timeout_s: float,  # noqa: ARG002
    ) -> Grade:
        """Return the judge's grade of an answer.

        Raises:
            NoJudgeError, ServerError: the judge cannot be asked.
        """
        question = question_of(row, patch)
        found = self.asker.answer(question)
        if found is None:
            cap = self.judge.max_cost
            return infra_failed(
                patch, reason=f"the judge's budget (benchmark.judge.max_cost={cap}) is used up"
            )
        if found.answer is None:
            return infra_failed(patch, reason=f"the judge gave no usable marks: {found.failure}")
        marks = {name: float(found.answer[name]) for name in DIMENSIONS}
        return of_answer(score_of(marks), parts=marks, said=str(found.answer["comment"]))


@dataclass(frozen=True, kw_only=True)
class SweQa:
    """Rows of a file; their repositories are clones of the user's."""

    grader: JudgeGrader = field(default_factory=JudgeGrader)
    trees: Path | None = None

    def configured(self, benchmark: BenchmarkSpec) -> "SweQa":
        """Return the format with the benchmark's judge and clones."""
        return SweQa(
            grader=JudgeGrader(judge=benchmark.judge or JudgeSpec()),
            trees=Path(benchmark.trees) if benchmark.trees else None,
        )

    def checkout(self, row: Mapping[str, Any], target: Path) -> None:
        """Fill `target` with the files of the row's commit, without the history around it."""
        if self.trees is None:
            raise SandboxError("benchmark.trees: name the folder of the repositories' clones")
        copy_tree(self.trees, str(row["repo"]), str(row["commit"]), target)

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return the rows of `dataset`."""
        if dataset is None:
            raise DatasetError("no dataset file is named")
        source = str(dataset)
        found = read_rows(dataset)
        for number, row in enumerate(found, start=1):
            missing = [column for column in COLUMNS if not row.get(column)]
            missing += [] if row.get("commit") or row.get("commit_id") else ["commit"]
            if missing:
                raise DatasetError(f"{place_of(row, number, source)}: missing {', '.join(missing)}")
        rows = [_row(row) for row in found]
        self.check(rows, source=source)
        return rows

    def check(self, rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
        """Raise `DatasetError` unless every row has an id of its own."""
        check_identities(rows, source=source)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    repo = str(row["repo"])
    name = hashlib.sha256(str(row["question"]).encode()).hexdigest()[:10]
    return {
        "instance_id": f"{repo.replace('/', '__')}-{name}",
        "problem_statement": str(row["question"]),
        "image": IMAGE,
        **row,
        "commit": str(row.get("commit") or row.get("commit_id")),
    }


FORMAT = SweQa()
