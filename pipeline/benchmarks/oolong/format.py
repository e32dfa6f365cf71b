"""Oolong: questions about one long text, answered by an agent that has it as a file.

The sandbox holds a row's context as `data.txt`. Answers are scored by rule (`scoring`); an instance
is solved where the score is 1.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.oolong.scoring import score_of, synth_gold
from pipeline.benchmarks.rows import DatasetError, check_identities, place_of, read_rows
from pipeline.benchmarks.toy.checkout import build
from pipeline.benchmarks.toy.sources import Commit
from pipeline.grading.evaluation import EvalSite, OpenSandbox
from pipeline.grading.verdict import Grade, of_answer

MAX_CONTEXT_TOKENS = 65_536
"""Rows with longer contexts are left out, as in arXiv 2607.18213; its 280 ids are not public."""
IMAGE = "python:3.12-bookworm"
"""What commands run in, for rows without an `image` of their own."""
COLUMNS = ("question", "answer", "context_window_text", "context_len")
_LEAKS = ("context_window_text_with_labels",)
"""Columns that give the answer away."""


def gold_answer(row: Mapping[str, Any]) -> str:
    """Return a row's right answer in the form that its question asks for."""
    if not row.get("answer_type"):
        return f"\\boxed{{{row['answer']}}}"
    gold = synth_gold(str(row["answer"]))
    return f"Answer: {gold.date() if row['answer_type'] == 'ANSWER_TYPE.DATE' else gold}"


class RuleGrader:
    """Oolong's own scoring rules."""

    scored = True

    def version(self, row: Mapping[str, Any]) -> str:  # noqa: ARG002 (one for all rows)
        """Return what names the rules."""
        return "oolong 1"

    def prepare(self) -> None:
        """Prepare nothing."""

    def gold(self, row: Mapping[str, Any], start: OpenSandbox) -> str:  # noqa: ARG002
        """Return the right answer."""
        return gold_answer(row)

    def grade(
        self,
        row: Mapping[str, Any],
        patch: str,
        start: OpenSandbox,  # noqa: ARG002 (rules need no sandbox)
        site: EvalSite,  # noqa: ARG002
        *,
        timeout_s: float,  # noqa: ARG002
    ) -> Grade:
        """Return the grade of an answer."""
        return of_answer(score_of(row, patch))


class Oolong:
    """Rows of Oolong-synth or Oolong-real, from a file in the columns of their publication."""

    grader = RuleGrader()

    def checkout(self, row: Mapping[str, Any], target: Path) -> None:
        """Fill `target` with the row's context as `data.txt`, which only root could write."""
        tree = {"data.txt": str(row["context_window_text"])}
        who = "benchmark <benchmark@localhost>"
        build([Commit(author=who, date=0, message="The data", tree=tree)], target)
        (target / "data.txt").chmod(0o444)

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return the rows with contexts of up to 65,536 tokens."""
        if dataset is None:
            raise DatasetError("no dataset file is named")
        source = str(dataset)
        found = read_rows(dataset)
        for number, row in enumerate(found, start=1):
            missing = [column for column in COLUMNS if not row.get(column)]
            if missing:
                raise DatasetError(f"{place_of(row, number, source)}: missing {', '.join(missing)}")
        rows = [_row(row) for row in found if int(row["context_len"]) <= MAX_CONTEXT_TOKENS]
        if not rows:
            raise DatasetError(f"{source}: every context has more than {MAX_CONTEXT_TOKENS} tokens")
        self.check(rows, source=source)
        return rows

    def check(self, rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
        """Raise `DatasetError` unless every row's gold answer can be read."""
        check_identities(rows, source=source)
        for number, row in enumerate(rows, start=1):
            try:
                gold_answer(row)
            except (ValueError, SyntaxError, IndexError, TypeError) as error:
                place = place_of(row, number, source)
                raise DatasetError(f"{place}: the answer cannot be read: {error}") from None


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    kind = "synth" if row.get("answer_type") else "real"
    return {
        "instance_id": f"oolong_{kind}__{row.get('id')}",
        "repo": f"oolong-{kind}/{row.get('dataset') or row.get('campaign') or kind}",
        "problem_statement": str(row["question"]),
        "image": IMAGE,
        **{key: value for key, value in row.items() if key not in _LEAKS},
    }


FORMAT = Oolong()
