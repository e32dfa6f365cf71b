"""Questions to a strong model: each asked until its answer can be used, within a budget, once.

Every answer goes to a journal before the next step, so that a job that was stopped, or that met
its cost cap, goes on where it was and pays for nothing twice. Requests are repeated by the HTTP
client; unusable answers are asked for again here, told what was wrong. Does not know what is asked.
"""

import hashlib
import json
import re
import threading
from collections import defaultdict
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

    def __init__(self, judge: JudgeSpec, spent: float) -> None:
        self._judge = judge
        self._spent = spent
        self._lock = threading.Lock()

    @property
    def spent(self) -> float:
        """What was spent and is reserved."""
        return self._spent

    def reserve(self, messages: Sequence[Mapping[str, str]]) -> float | None:
        """Return what was set aside for a request, or None where it does not fit."""
        characters = sum(len(m["content"]) for m in messages)
        estimate = cost_of(self._judge, characters / CHARACTERS_PER_TOKEN, self._judge.max_tokens)
        with self._lock:
            cap = self._judge.max_cost
            if cap is not None and self._spent + estimate > cap:
                return None
            self._spent += estimate
        return estimate

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what was set aside by what it came to."""
        with self._lock:
            self._spent += cost - reserved


def cost_of(judge: JudgeSpec, prompt_tokens: float, completion_tokens: float) -> float:
    """Return the cost of a request, in the unit of the judge's prices."""
    return (prompt_tokens * judge.input_price + completion_tokens * judge.output_price) / 1e6


class Asker:
    """A judge, its budget, and the answers that are paid for. May be shared by threads."""

    def __init__(
        self, judge: JudgeSpec, completer: Completer, journal: Path, others: Sequence[Path] = ()
    ) -> None:
        """Read what was answered before.

        Args:
            judge: how questions are put, and what they may cost.
            completer: the judge's client.
            journal: where answers are kept, from the moment that they arrive.
            others: journals of other processes; their answers are known, and their costs count.
        """
        self._judge, self._completer, self._journal = judge, completer, journal
        paid = [answered for path in others for answered in _answers_in(path)]
        paid += read_journal(journal)
        self._known = {(a.question_id, a.request_sha256): a for a in paid}
        spent = sum(cost_of(judge, a.prompt_tokens, a.completion_tokens) for a in paid)
        self.budget = Budget(judge, spent)
        self._lock = threading.Lock()
        self._asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def answer(self, question: Question) -> Answered | None:
        """Return what came of the question, or comes of it now; None for lack of budget.

        Threads with the same question ask it once. Raises `ServerError` as `ask` does.
        """
        with self._lock:
            one_at_a_time = self._asking[question.sha256(self._judge.model)]
        with one_at_a_time:
            return self.known(question) or self.ask(question)

    def known(self, question: Question) -> Answered | None:
        """Return what came of the question, if it need not be asked again."""
        found = self._known.get((question.question_id, question.sha256(self._judge.model)))
        return found if found is not None and found.is_final else None

    def ask(self, question: Question) -> Answered | None:
        """Return what comes of the question; None where the budget does not allow to ask.

        Raises:
            ServerError: the endpoint is gone or refuses.
        """
        # Kept by the thread that asked: whatever stops the main one, what is paid for is not lost.
        answered = _answer(question, self._judge, self._completer, self.budget)
        if answered is not None:
            with self._lock:
                append_fsync(self._journal, json.dumps(asdict(answered)).encode() + b"\n")
                self._known[(answered.question_id, answered.request_sha256)] = answered
        return answered


def ask_all(
    questions: Sequence[Question], judge: JudgeSpec, completer: Completer, journal: Path
) -> AskReport:
    """Ask every question that the journal does not answer yet, and return all answers.

    Raises:
        ServerError: the endpoint is gone or refuses; what was answered is in the journal.
    """
    asker = Asker(judge, completer, journal)
    todo = [question for question in questions if asker.known(question) is None]
    report = AskReport(n_known=len(questions) - len(todo))
    for _ in _ask(todo, asker.ask, judge.concurrency):
        report.n_asked += 1
    report.cost = asker.budget.spent
    for question in questions:
        found = asker.known(question)
        if found is None:
            report.n_left += 1
        elif found.answer is None:
            report.n_failed += 1
            report.first_failure = report.first_failure or str(found.failure)
        else:
            report.answers[question.question_id] = found.answer
    return report


def read_journal(path: Path) -> list[Answered]:
    """Return what came of every question, the newest last; a torn last line is cut off.

    A question may be there several times: its prompt was changed, or its budget was.
    """
    if path.exists():
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            replace_bytes(path, whole)
    return _answers_in(path)


def _answers_in(path: Path) -> list[Answered]:
    """Return the answers of whole lines; another process may be writing the last one."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [Answered(**json.loads(line)) for line in lines if line.endswith(b"\n")]


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
    question: Question, judge: JudgeSpec, completer: Completer, budget: Budget
) -> Answered | None:
    """Return what came of one question; None where the budget did not allow to ask."""
    messages = list(question.messages)
    prompt_tokens = completion_tokens = 0
    failure: str | None = None
    answer = None
    attempt = 0
    is_final = True
    while attempt < judge.max_attempts and answer is None:
        reserved = budget.reserve(messages)
        if reserved is None:
            is_final = False
            break
        attempt += 1
        cost = 0.0
        try:
            reply = completer.complete(_request(messages, judge))
            cost = cost_of(judge, reply.prompt_tokens, reply.completion_tokens)
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
        request_sha256=question.sha256(judge.model),
        answer=answer,
        failure=None if answer is not None else failure,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        attempts=attempt,
        is_final=is_final,
    )


def _request(messages: Sequence[Mapping[str, str]], judge: JudgeSpec) -> ChatRequest:
    return ChatRequest(
        messages=[json.dumps(m, ensure_ascii=False).encode("utf-8", "replace") for m in messages],
        seed=judge.seed,
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        cache_salt="",
        extra=judge.extra_body,
    )
