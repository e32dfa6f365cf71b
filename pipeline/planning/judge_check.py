"""What a sweep that is graded by a judge needs, and what the judge may cost."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.registry import format_of
from pipeline.benchmarks.swe_qa.format import JudgeGrader
from pipeline.benchmarks.swe_qa.judging import question_of
from pipeline.judging.asking import CHARACTERS_PER_TOKEN, cost_of
from pipeline.planning.problem import Problem
from pipeline.records.plan import PlannedRun
from pipeline.spec.sweep import SweepSpec

ANSWER_CHARS, MARKS_TOKENS = 4_000, 150
"""Assumed lengths of an answer, and of what the judge writes about it."""


def judge_problems(spec: SweepSpec) -> Iterator[Problem]:
    """Yield what is missing of the judge and of the repositories that the questions are about."""
    grader = format_of(spec.benchmark).grader
    if not isinstance(grader, JudgeGrader):
        return
    if spec.grade and not (grader.judge.model and grader.judge.base_url):
        yield Problem(
            field="benchmark.judge",
            message="name who grades the answers: benchmark.judge.model=NAME "
            "benchmark.judge.base_url=http://HOST:PORT/v1 (or grade=false)",
        )
    trees = spec.benchmark.trees
    if trees is None or not Path(trees).is_dir():
        yield Problem(
            field="benchmark.trees",
            message=f"no folder {trees}: clone the repositories there, as OWNER__NAME",
        )
    wrong = [name for name, agent in spec.agents.items() if agent.submit != "answer"]
    if wrong:
        yield Problem(
            field=f"agents.{wrong[0]}.submit",
            message="questions are answered with a text: use agent=mini_answer",
        )


def judge_remark(
    spec: SweepSpec, rows: Sequence[Mapping[str, Any]], todo: Sequence[PlannedRun]
) -> str | None:
    """Return what judging the runs still to do may cost; None without a judge."""
    grader = format_of(spec.benchmark).grader
    if not isinstance(grader, JudgeGrader) or not todo:
        return None
    by_id = {str(row["instance_id"]): row for row in rows}
    characters = sum(
        len(message["content"])
        for run in todo
        for message in question_of(by_id[run.instance_id], "x" * ANSWER_CHARS).messages
    )
    prompt, written = characters / CHARACTERS_PER_TOKEN, MARKS_TOKENS * len(todo)
    cost, cap = cost_of(grader.judge, prompt, written), grader.judge.max_cost
    allowed = "no cap" if cap is None else f"cap {cap:,.2f}"
    return (
        f"the judge {grader.judge.model} grades up to {len(todo):,} answers: at most about "
        f"{prompt / 1e6:,.2f}M prompt tokens and a cost of {cost:,.2f} "
        f"(benchmark.judge.input_price, output_price; {allowed})"
    )
