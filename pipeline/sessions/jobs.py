"""One source, replayed under every arm: what a process does, and many of them at once."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.replaying.money import session_cost, tariffs_of
from pipeline.replaying.price_regret import Schedules
from pipeline.replaying.replay import Recording, Replayer, ReplaySettings
from pipeline.replaying.replay_report import REFERENCE, Priced, call_objects, priced
from pipeline.replaying.self_check import SelfCheck, self_check
from pipeline.sessions.facts import SessionFacts, session_facts
from pipeline.sessions.recordings import SourceError, counter_named, recordings
from pipeline.spec.arm import ArmSpec
from pipeline.spec.pricing import Pricing


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a process replays."""

    source: Path
    reference: ArmSpec
    """The arm that shows everything; replayed whether or not it is asked for."""
    arms: tuple[ArmSpec, ...]
    settings: ReplaySettings
    pricing: Pricing
    prices: str | None
    """Name of the list for all models; None: each model's own."""
    counter: str
    by_call: bool
    page: bool = False
    """Gather what the page shows."""
    no_text: bool = False
    billed_elsewhere: frozenset[str] = frozenset()


@dataclass(kw_only=True, slots=True)
class Done:
    """What came of a job."""

    results: list[Priced] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    checks: list[SelfCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: list[SessionFacts] = field(default_factory=list)
    left_out: str = ""
    """Why the source, or the rest of it, could not be replayed; empty where it could."""


def replay_all(jobs: Sequence[Job], processes: int, one: Callable[[Job], Done]) -> Iterator[Done]:
    """Yield what `one` made of each job, in order."""
    if processes <= 1 or len(jobs) <= 1:
        yield from map(one, jobs)
        return
    with ProcessPoolExecutor(min(processes, len(jobs))) as pool:
        yield from pool.map(one, jobs, chunksize=max(1, len(jobs) // (16 * processes)))


def replayed(job: Job) -> Done:
    """Return every arm of a job over every run of its source, or why that cannot be read."""
    done = Done()
    try:
        for recording in recordings(job.source, job.counter, billed_elsewhere=job.billed_elsewhere):
            _replay_one(recording, job, done)
    except SourceError as error:
        done.left_out = str(error)
    return done


def _replay_one(recording: Recording, job: Job, done: Done) -> None:
    replayer = Replayer(recording, counter_named(job.counter), job.settings)
    done.notes.extend(f"{recording.instance_id}: {note}" for note in recording.notes)
    tariffs = tariffs_of(recording, job.pricing, job.prices)
    reference = replayer.replay(job.reference)
    ttl_s = tariffs.prices().ttl_s
    done.checks.append(self_check(recording, reference, replayer.calibration, ttl_s=ttl_s))
    session = session_cost(recording, reference, tariffs)
    schedules = Schedules(recording, replayer, tariffs.prices())
    cheapest = schedules.cheapest()
    replays = {REFERENCE: reference}
    for arm in job.arms:
        result = reference if arm.name == REFERENCE else replayer.replay(arm)
        replays[arm.name] = result
        retimed = schedules.retimed(result)
        done.results.append(priced(result, tariffs, session, cheapest=cheapest, retimed=retimed))
        if job.by_call:
            done.calls.extend(call_objects(result))
    if job.page:
        done.facts.append(
            session_facts(recording, replayer, replays, session, tariffs, no_text=job.no_text)
        )
