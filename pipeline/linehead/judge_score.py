"""What a strong model says of a head's choices, where an endpoint is configured.

It sees the command, its output with each line marked as staying or removed, and what the agent did
next, and gives 1 to 10 for all of it together. A second opinion beside F1,
which inherits every mistake of the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.judging.asking import AskReport, Question, ask_all, json_in, number_in
from pipeline.judging.endpoint import judge_completer
from pipeline.linehead.config import ConfigError
from pipeline.linehead.label_table import LabelledOutput, read_labels
from pipeline.linehead.settings import EvalJob
from pipeline.views.kept_lines import BoolArray, split_lines

JOURNAL = "judge.answers.jsonl"

SYSTEM = """\
You grade a tool that removes lines from a command's output before a coding agent reads it again.
Lines marked "-" were removed, lines marked "+" stay; what the agent did next, with the whole output
before it, follows. A good result keeps whatever could inform the
agent's later work and removes what could not. Answer with one JSON object and nothing else:
{"reasoning": "one sentence", "score": 1 to 10}"""


Decisions = Mapping[str, BoolArray]
"""By sample, which lines a method keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeScores:
    """The judge's mean grade of every method, and what the grading took."""

    means: Mapping[str, float]
    """By method, over the outputs that have a grade for each of them; empty where none has."""
    n_graded: int
    """Outputs that the means are over."""
    asked: AskReport


def judge_scores(
    methods: Mapping[str, Decisions], job: EvalJob, environment: Mapping[str, str]
) -> JudgeScores:
    """Return the grades of up to `judge_samples` outputs a method.

    Answers are kept in the evaluation's folder: the same command again pays for nothing twice.

    Raises:
        ConfigError: `labels` or the endpoint's model is missing.
        ServerError: the endpoint fails; what was answered is kept.
    """
    if job.labels is None:
        raise ConfigError("a judge's score needs labels=FILE, which holds the outputs' texts")
    everywhere = set.intersection(*(set(decisions) for decisions in methods.values()))
    found = [o for o in read_labels(Path(job.labels)).outputs if o.sample_id in everywhere]
    if any(output.followed is None for output in found):
        raise ConfigError(
            f"labels={job.labels} does not say what followed each output; make it again with "
            "`linehead label` (a judge's answers are kept and not paid for again)"
        )
    outputs = found[: job.judge_samples]
    questions = {
        (name, output.sample_id): _question(name, output, decisions[output.sample_id])
        # One output under every method before the next: a cap leaves whole comparisons.
        for output in outputs
        for name, decisions in methods.items()
    }
    completer = judge_completer(job.judge, environment)
    try:
        asked = ask_all(list(questions.values()), job.judge, completer, Path(job.out) / JOURNAL)
    finally:
        completer.close()
    grades = {
        key: float(asked.answers[question.question_id]["score"])
        for key, question in questions.items()
        if question.question_id in asked.answers
    }
    compared = [o for o in outputs if all((name, o.sample_id) in grades for name in methods)]
    means = {
        name: float(np.mean([grades[name, o.sample_id] for o in compared]))
        for name in (methods if compared else ())
    }
    return JudgeScores(means=means, n_graded=len(compared), asked=asked)


def marked_text(text: str, kept: BoolArray) -> str:
    """Return the lines of a text, each marked as staying or removed."""
    return "\n".join(
        f"{'+' if stays else '-'} {line.rstrip()}"
        for line, stays in zip(split_lines(text), kept, strict=True)
    )


def _question(method: str, output: LabelledOutput, kept: BoolArray) -> Question:
    marked = marked_text(output.text, kept)
    text = (
        f"<command>\n{output.command}\n</command>\n\n<output>\n{marked}\n</output>\n\n"
        f"<after>\n{output.followed}\n</after>"
    )
    return Question(
        question_id=f"{method}|{output.sample_id}",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
        parse=_parsed,
    )


def _parsed(text: str) -> dict[str, Any]:
    data = json_in(text)
    return {
        "score": number_in(data, "score", 1, 10),
        "reasoning": str(data.get("reasoning", "")),
    }
