"""How far a judge disagrees with itself: answers that it graded before, put to it again."""

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pipeline.benchmarks.swe_qa.format import JudgeGrader
from pipeline.benchmarks.swe_qa.judging import question_of, score_of
from pipeline.records.layout import Layout
from pipeline.records.lock import read_rows
from pipeline.records.plan import PlannedRun
from pipeline.records.rebuild import recorded_run
from pipeline.records.states import run_states


@dataclass(frozen=True, kw_only=True)
class JudgeNoise:
    """Scores of the same answers, graded twice."""

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def sd(self) -> float:
        """Standard deviation of one grading: that of the differences over the root of 2."""
        squares = [(a - b) ** 2 for a, b in zip(self.first, self.second, strict=True)]
        return math.sqrt(sum(squares) / len(squares) / 2) if squares else math.nan

    @property
    def n_equal(self) -> int:
        """Answers with the same score twice."""
        return sum(a == b for a, b in zip(self.first, self.second, strict=True))


def measure_noise(
    layout: Layout, runs: Sequence[PlannedRun], grader: JudgeGrader, n: int
) -> JudgeNoise:
    """Grade up to `n` answers of finished runs a second time; no grade of a run changes.

    The answers are drawn with a fixed seed. The second grading of an answer is kept with the
    judge's other answers, and a later call asks for neither again.

    Raises:
        NoJudgeError, ServerError: the judge cannot be asked.
    """
    states, rows = run_states(layout), read_rows(layout.dataset)
    asker = grader.asker
    different = {
        (run.instance_id, answer): question_of(rows[run.instance_id], answer)
        for run in runs
        if (state := states.get(run.run_id)) is not None
        and state.has_result
        and (answer := recorded_run(layout, state).answer)
    }
    questions = list(different.values())
    random.Random(0).shuffle(questions)

    def scores(number: int) -> tuple[float, float] | None:
        question = questions[number]
        again = replace(question, question_id=f"{question.question_id}#again")
        found = [asker.answer(q) for q in (question, again)]
        marks = [f.answer for f in found if f is not None and f.answer is not None]
        return (score_of(marks[0]), score_of(marks[1])) if len(marks) == 2 else None

    with ThreadPoolExecutor(grader.judge.concurrency) as pool:
        pairs = [pair for pair in pool.map(scores, range(min(n, len(questions)))) if pair]
    return JudgeNoise(first=tuple(a for a, _ in pairs), second=tuple(b for _, b in pairs))
