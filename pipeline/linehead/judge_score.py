"""What a strong model says of a head's choices, where an endpoint is configured.

It sees the output, the lines that were removed, and what the agent did next, and gives 0 to 10
for what was kept and what was dropped together. A second opinion beside F1, which inherits every
mistake of the labels.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.context.kept_lines import BoolArray, split_lines
from pipeline.linehead.config import ConfigError
from pipeline.linehead.label_job import judge_completer
from pipeline.linehead.label_table import LabelledOutput, read_labels
from pipeline.linehead.settings import EvalJob, JudgeSettings
from pipeline.protocols import ChatRequest, Completer

SYSTEM = """\
You grade a tool that removes lines from a command's output before a coding agent reads it again.
Lines marked "-" were removed, lines marked "+" stay. A good result keeps whatever could inform the
agent's later work and removes what could not. Answer with one JSON object and nothing else:
{"reasoning": "one sentence", "score": 0 to 10}"""


def judge_score(
    decisions: Mapping[str, BoolArray], job: EvalJob, environment: Mapping[str, str]
) -> float | None:
    """Return the mean grade of up to `judge_samples` outputs; None if no answer was usable.

    Raises:
        ConfigError: `labels` or the endpoint's model is missing.
        ServerError: the endpoint fails.
    """
    if job.labels is None:
        raise ConfigError("a judge's score needs labels=FILE, which holds the outputs' texts")
    outputs = [o for o in read_labels(Path(job.labels)).outputs if o.sample_id in decisions]
    completer = judge_completer(job.judge, environment)
    try:
        grades = [
            _grade(output, decisions[output.sample_id], job.judge, completer)
            for output in outputs[: job.judge_samples]
        ]
    finally:
        completer.close()
    usable = [grade for grade in grades if grade is not None]
    return float(np.mean(usable)) if usable else None


def marked_text(text: str, kept: BoolArray) -> str:
    """Return the lines of a text, each marked as staying or removed."""
    return "\n".join(
        f"{'+' if stays else '-'} {line.rstrip()}"
        for line, stays in zip(split_lines(text), kept, strict=True)
    )


def _grade(
    output: LabelledOutput, kept: BoolArray, settings: JudgeSettings, completer: Completer
) -> float | None:
    marked = marked_text(output.text, kept)
    question = f"<command>\n{output.command}\n</command>\n\n<output>\n{marked}\n</output>"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    reply = completer.complete(
        ChatRequest(
            messages=[
                json.dumps(m, ensure_ascii=False).encode("utf-8", "replace") for m in messages
            ],
            seed=settings.seed,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            cache_salt="",
            extra=settings.extra_body,
        )
    )
    found = re.search(r'"score"\s*:\s*(\d+(?:\.\d+)?)', reply.content)
    grade = None if found is None else float(found[1])
    return grade if grade is not None and grade <= 10 else None
