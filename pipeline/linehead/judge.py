"""The labelling job: asks a strong model for the lines of every output, within a budget.

Every answer goes to a journal beside the labels before the next step, so that a job that was
stopped, or that met its cost cap, goes on where it was and pays for nothing twice. Requests are
repeated by the HTTP client; unusable answers are asked for again here, told what was wrong.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.context.kept_lines import count_lines
from pipeline.host.files import append_fsync, replace_bytes
from pipeline.linehead.judge_prompt import (
    Answer,
    AnswerError,
    correction,
    judge_messages,
    parsed_answer,
)
from pipeline.linehead.label_table import LabelledOutput, labelled
from pipeline.linehead.samples import Sample
from pipeline.linehead.settings import JudgeSettings
from pipeline.protocols import ChatRequest, Completer
from pipeline.records.failure import ContextOverflowError, ServerError

CHARACTERS_PER_TOKEN = 2.0
"""For the estimate that guards the cap: code has 3 to 4, so that it errs on the dear side."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What came of one output. On disk as a line of the journal."""

    sample_id: str
    request_sha256: str
    """Of the question: another prompt or model is asked again."""
    answer: Answer | None
    failure: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1


@dataclass(slots=True)
class JudgeReport:
    """What a job did."""

    labels: list[LabelledOutput] = field(default_factory=list)
    n_asked: int = 0
    n_known: int = 0
    n_failed: int = 0
    n_unsure: int = 0
    """Answers under `min_confidence`."""
    n_left: int = 0
    """Not asked for lack of budget."""
    cost: float = 0.0
    """Of all answers in the journal, those of earlier jobs included."""


class Budget:
    """The cost cap: a request reserves its worst case first. May be shared by threads."""

    def __init__(self, settings: JudgeSettings, spent: float) -> None:
        self._settings = settings
        self._spent = spent
        self._lock = threading.Lock()

    @property
    def spent(self) -> float:
        """What was spent and is reserved."""
        return self._spent

    def reserve(self, messages: Sequence[Mapping[str, str]]) -> float | None:
        """Return what was set aside for a request, or None where it does not fit."""
        characters = sum(len(m["content"]) for m in messages)
        estimate = cost_of(
            self._settings, characters / CHARACTERS_PER_TOKEN, self._settings.max_tokens
        )
        with self._lock:
            cap = self._settings.max_cost
            if cap is not None and self._spent + estimate > cap:
                return None
            self._spent += estimate
        return estimate

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what was set aside by what it came to."""
        with self._lock:
            self._spent += cost - reserved


def cost_of(settings: JudgeSettings, prompt_tokens: float, completion_tokens: float) -> float:
    """Return the cost of a request, in the unit of the settings' prices."""
    return (prompt_tokens * settings.input_price + completion_tokens * settings.output_price) / 1e6


def judge_labels(
    samples: Sequence[Sample], settings: JudgeSettings, completer: Completer, journal: Path
) -> JudgeReport:
    """Ask for every sample that the journal does not answer yet, and return all labels.

    Raises:
        ServerError: the endpoint is gone or refuses; what was answered is in the journal.
    """
    known = read_journal(journal)
    report = JudgeReport()
    todo = []
    for sample in samples:
        old = known.get(sample.sample_id)
        if old is None or old.request_sha256 != request_sha256(sample, settings):
            todo.append(sample)
    report.n_known = len(samples) - len(todo)
    spent = sum(cost_of(settings, j.prompt_tokens, j.completion_tokens) for j in known.values())
    budget = Budget(settings, spent)
    for judged in _asked(todo, settings, completer, budget):
        append_fsync(journal, _line(judged))
        known[judged.sample_id] = judged
        report.n_asked += 1
    asked = {s.sample_id for s in samples if _is_current(known, s, settings)}
    report.n_left = len(samples) - len(asked)
    report.cost = budget.spent
    for sample in samples:
        if sample.sample_id in asked:
            _take(known[sample.sample_id], sample, settings, report)
    return report


def request_sha256(sample: Sample, settings: JudgeSettings) -> str:
    """Return what identifies the question about a sample."""
    question = {"model": settings.model, "messages": judge_messages(sample, settings)}
    text = json.dumps(question, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def read_journal(path: Path) -> dict[str, Judged]:
    """Return the newest answer about each sample; a torn last line is cut off."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        replace_bytes(path, whole)
    lines = (json.loads(line) for line in whole.splitlines())
    return {row["sample_id"]: _judged_from(row) for row in lines}


def _is_current(known: Mapping[str, Judged], sample: Sample, settings: JudgeSettings) -> bool:
    judged = known.get(sample.sample_id)
    return judged is not None and judged.request_sha256 == request_sha256(sample, settings)


def _take(judged: Judged, sample: Sample, settings: JudgeSettings, report: JudgeReport) -> None:
    answer = judged.answer
    if answer is None:
        report.n_failed += 1
    elif answer.confidence < settings.min_confidence:
        report.n_unsure += 1
    else:
        kept = answer.kept(count_lines(sample.text))
        report.labels.append(
            labelled(sample, kept, confidence=answer.confidence, reasoning=answer.reasoning)
        )


def _asked(
    samples: Sequence[Sample], settings: JudgeSettings, completer: Completer, budget: Budget
) -> Iterator[Judged]:
    """Yield answers as they come; few requests wait, so that an error ends the job soon."""
    rest = iter(samples)
    with ThreadPoolExecutor(settings.concurrency) as pool:

        def started(n: int) -> set[Future[Judged | None]]:
            return {
                pool.submit(_judged, sample, settings, completer, budget)
                for sample in islice(rest, n)
            }

        waiting = started(settings.concurrency)
        failure: ServerError | None = None
        while waiting:
            done = next(as_completed(waiting))
            waiting.remove(done)
            try:
                judged = done.result()
            except ServerError as error:
                # What else is on its way is paid for, so it is waited for and kept.
                failure = failure or error
                continue
            # No budget for this one; a shorter one may still fit.
            if judged is not None:
                yield judged
            if failure is None:
                waiting |= started(1)
        if failure is not None:
            raise failure


def _judged(
    sample: Sample, settings: JudgeSettings, completer: Completer, budget: Budget
) -> Judged | None:
    """Return what came of one sample; None where the budget did not allow to ask."""
    messages = judge_messages(sample, settings)
    prompt_tokens = completion_tokens = 0
    failure = "no budget to ask again"
    answer = None
    attempt = 0
    while attempt < settings.max_attempts and answer is None:
        reserved = budget.reserve(messages)
        if reserved is None:
            break
        attempt += 1
        cost = 0.0
        try:
            reply = completer.complete(_request(messages, settings))
            cost = cost_of(settings, reply.prompt_tokens, reply.completion_tokens)
        except ContextOverflowError as error:
            failure = f"too long for the judge: {error}"
            break
        finally:
            budget.settle(reserved, cost)
        prompt_tokens += reply.prompt_tokens
        completion_tokens += reply.completion_tokens
        try:
            answer = parsed_answer(reply.content, count_lines(sample.text))
        except AnswerError as error:
            failure = str(error)
            messages = [*judge_messages(sample, settings), *correction(reply.content, error)]
    if attempt == 0:
        return None
    return Judged(
        sample_id=sample.sample_id,
        request_sha256=request_sha256(sample, settings),
        answer=answer,
        failure=None if answer is not None else failure,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        attempts=attempt,
    )


def _request(messages: Sequence[Mapping[str, str]], settings: JudgeSettings) -> ChatRequest:
    return ChatRequest(
        messages=[json.dumps(m, ensure_ascii=False).encode("utf-8", "replace") for m in messages],
        seed=settings.seed,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        cache_salt="",
        extra=settings.extra_body,
    )


def _line(judged: Judged) -> bytes:
    return json.dumps(asdict(judged)).encode() + b"\n"


def _judged_from(row: Mapping[str, Any]) -> Judged:
    answer = row["answer"]
    if answer is not None:
        answer = Answer(
            ranges=tuple((first, last) for first, last in answer["ranges"]),
            confidence=answer["confidence"],
            reasoning=answer["reasoning"],
        )
    return Judged(**{**row, "answer": answer})
