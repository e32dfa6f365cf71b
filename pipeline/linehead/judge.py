"""A judge's labels for the lines of outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.judging.asking import AskReport, Question, ask_all
from pipeline.linehead.judge_prompt import Answer, judge_messages, parsed_answer
from pipeline.linehead.label_table import LabelledOutput, labelled
from pipeline.linehead.samples import Sample
from pipeline.linehead.settings import JudgeSettings
from pipeline.protocols import Completer
from pipeline.views.kept_lines import count_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The judge's labels, and what they took."""

    labels: list[LabelledOutput]
    n_unsure: int
    """Answers under `min_confidence`, which are no labels."""
    asked: AskReport


def judge_labels(
    samples: Sequence[Sample], settings: JudgeSettings, completer: Completer, journal: Path
) -> Judged:
    """Ask for every sample that the journal does not answer yet, and return all labels.

    Raises:
        ServerError: the endpoint is gone or refuses; what was answered is in the journal.
    """
    questions = [
        Question(
            question_id=sample.sample_id,
            messages=judge_messages(sample, settings),
            parse=partial(_parsed, n_lines=count_lines(sample.text)),
        )
        for sample in samples
    ]
    report = ask_all(questions, settings, completer, journal)
    found = {name: _answer(data) for name, data in report.answers.items()}
    # A skeleton is the rubric's own answer to doubt, so that no threshold is asked of it.
    sure = {
        name: a
        for name, a in found.items()
        if a.confidence is None or a.confidence >= settings.min_confidence
    }
    labels = [
        labelled(
            sample,
            answer.kept(count_lines(sample.text)),
            confidence=answer.confidence,
            reasoning=answer.reasoning,
        )
        for sample in samples
        if (answer := sure.get(sample.sample_id)) is not None
    ]
    return Judged(labels=labels, n_unsure=len(found) - len(sure), asked=report)


def _parsed(text: str, n_lines: int) -> dict[str, Any]:
    return asdict(parsed_answer(text, n_lines))


def _answer(data: Mapping[str, Any]) -> Answer:
    return Answer(
        ranges=tuple((first, last) for first, last in data["ranges"]),
        confidence=data["confidence"],
        reasoning=data["reasoning"],
    )
