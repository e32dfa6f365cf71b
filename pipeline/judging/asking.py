"""Questions to a strong model: each asked until its answer can be used, within a budget, once.

Every answer goes to a journal before the next step, so that a job that was stopped, or that met
its cost cap, goes on where it was and pays for nothing twice. Requests are repeated by the HTTP
client; unusable answers are asked for again here, told what was wrong. Does not know what is asked.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.host.files import append_fsync, replace_bytes
from pipeline.host.log import say
from pipeline.protocols import ChatRequest, Completer
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.spec.judge import JudgeSpec

CHARACTERS_PER_TOKEN = 2.0
"""For the estimate that guards the cap: code has 3 to 4, so that it errs on the dear side."""


class AnswerError(ValueError):
    """An answer that is not what was asked for; the message tells the model what is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question and how its answer is read."""

    question_id: str
    messages: Sequence[Mapping[str, str]]
    parse: Callable[[str], Mapping[str, Any]]
    """From the answer's text to JSON; raises AnswerError."""

    def sha256(self, model: str | None) -> str:
        """Return what identifies it: another prompt or model is another question."""
        text = json.dumps({"model": model, "messages": list(self.messages)}, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What came of a question. On disk as a line of the journal."""

    question_id: str
    request_sha256: str
    answer: Mapping[str, Any] | None
    failure: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1
    is_final: bool = True
    """False where the budget ended before the attempts: a larger one asks again."""


@dataclass(slots=True)
class AskReport:
    """What came of a list of questions."""

    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By question, those with a usable answer."""
    n_asked: int = 0
    n_known: int = 0
    """Answered before, by the journal."""
    n_failed: int = 0
    """Without a usable answer."""
    first_failure: str = ""
    """What was wrong with the first of those."""
    n_left: int = 0
    """Not asked, or not often enough, for lack of budget."""
    cost: float = 0.0
    """Of all answers in the journal, those of earlier jobs included."""


class Budget:
    """The cost cap: a request reserves its worst case first. May be shared by threads."""

    def __init__(self, settings: JudgeSpec, spent: float) -> None:
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


def cost_of(settings: JudgeSpec, prompt_tokens: float, completion_tokens: float) -> float:
    """Return the cost of a request, in the unit of the settings' prices."""
    return (prompt_tokens * settings.input_price + completion_tokens * settings.output_price) / 1e6


def ask_all(
    questions: Sequence[Question], settings: JudgeSpec, completer: Completer, journal: Path
) -> AskReport:
    """Ask every question that the journal does not answer yet, and return all answers.

    Raises:
        ServerError: the endpoint is gone or refuses; what was answered is in the journal.
    """
    paid = read_journal(journal)
    known = {answered.question_id: answered for answered in paid}
    hashes = {q.question_id: q.sha256(settings.model) for q in questions}

    def is_known(question: Question) -> bool:
        old = known.get(question.question_id)
        if old is None or not old.is_final:
            return False
        return old.request_sha256 == hashes[question.question_id]

    todo = [q for q in questions if not is_known(q)]
    report = AskReport(n_known=len(questions) - len(todo))
    spent = sum(cost_of(settings, a.prompt_tokens, a.completion_tokens) for a in paid)
    budget = Budget(settings, spent)
    journal_lock = threading.Lock()

    def ask(question: Question) -> Answered | None:
        # Kept by the thread that asked: whatever stops the main one, what is paid for is not lost.
        answered = _answer(question, settings, completer, budget)
        if answered is not None:
            with journal_lock:
                append_fsync(journal, json.dumps(asdict(answered)).encode() + b"\n")
        return answered

    for answered in _ask(todo, ask, settings.concurrency):
        known[answered.question_id] = answered
        report.n_asked += 1
    report.cost = budget.spent
    for question in questions:
        if not is_known(question):
            report.n_left += 1
        elif (answer := known[question.question_id].answer) is None:
            report.n_failed += 1
            report.first_failure = report.first_failure or str(known[question.question_id].failure)
        else:
            report.answers[question.question_id] = answer
    return report


def read_journal(path: Path) -> list[Answered]:
    """Return what came of every question, the newest last; a torn last line is cut off.

    A question may be there several times: its prompt was changed, or its budget was.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        replace_bytes(path, whole)
    return [Answered(**json.loads(line)) for line in whole.splitlines()]


def json_in(text: str) -> Mapping[str, Any]:
    """Return the JSON object in an answer; thinking and a code fence around it are passed over.

    Raises:
        AnswerError: there is none.
    """
    body = re.sub(r"(?s)^.*</think>", "", text)
    found = re.search(r"(?s)\{.*\}", body)
    if found is None:
        raise AnswerError("there is no JSON object in it")
    try:
        data: Mapping[str, Any] = json.loads(found[0])
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"the JSON does not parse ({error})") from error
    return data


def number_in(data: Mapping[str, Any], key: str, low: float, high: float) -> float:
    """Return the number under `key`.

    Raises:
        AnswerError: it is missing, no number, or out of range.
    """
    if key not in data:
        raise AnswerError(f"the key {key!r} is missing")
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AnswerError(f"{key} is no number")
    if not low <= value <= high:
        raise AnswerError(f"{key} is {value}, not between {low:g} and {high:g}")
    return float(value)


def _correction(answer: str, error: AnswerError) -> list[dict[str, str]]:
    """Return the messages that ask again after an unusable answer."""
    return [
        {"role": "assistant", "content": answer or "(no answer)"},
        {"role": "user", "content": f"That cannot be used: {error}. Answer with the JSON object."},
    ]


def _ask(
    questions: Sequence[Question], ask: Callable[[Question], Answered | None], concurrency: int
) -> Iterator[Answered]:
    """Yield answers as they come; few requests wait, so that an error ends the job soon."""
    rest = iter(questions)
    with ThreadPoolExecutor(concurrency) as pool:

        def started(n: int) -> set[Future[Answered | None]]:
            return {pool.submit(ask, question) for question in islice(rest, n)}

        waiting = started(concurrency)
        failure: ServerError | None = None
        while waiting:
            try:
                done = next(as_completed(waiting))
            except KeyboardInterrupt:
                say("stopping once the answers that are on their way, and paid for, are here")
                raise
            waiting.remove(done)
            try:
                answered = done.result()
            except ServerError as error:
                # What else is on its way is paid for, so it is waited for and kept.
                failure = failure or error
                continue
            # No budget for this one; a shorter one may still fit.
            if answered is not None:
                yield answered
            if failure is None:
                waiting |= started(1)
        if failure is not None:
            raise failure


def _answer(
    question: Question, settings: JudgeSpec, completer: Completer, budget: Budget
) -> Answered | None:
    """Return what came of one question; None where the budget did not allow to ask."""
    messages = list(question.messages)
    prompt_tokens = completion_tokens = 0
    failure: str | None = None
    answer = None
    attempt = 0
    is_final = True
    while attempt < settings.max_attempts and answer is None:
        reserved = budget.reserve(messages)
        if reserved is None:
            is_final = False
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
            answer = question.parse(reply.content)
        except AnswerError as error:
            failure = str(error)
            messages = [*question.messages, *_correction(reply.content, error)]
    if attempt == 0:
        return None
    return Answered(
        question_id=question.question_id,
        request_sha256=question.sha256(settings.model),
        answer=answer,
        failure=None if answer is not None else failure,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        attempts=attempt,
        is_final=is_final,
    )


def _request(messages: Sequence[Mapping[str, str]], settings: JudgeSpec) -> ChatRequest:
    return ChatRequest(
        messages=[json.dumps(m, ensure_ascii=False).encode("utf-8", "replace") for m in messages],
        seed=settings.seed,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        cache_salt="",
        extra=settings.extra_body,
    )
