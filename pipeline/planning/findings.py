"""Why a sweep does not get on, and the line that helps: jobs without results, a full disk, grades.

Each finding says what is the matter, with numbers, and what to do. Looked for in the folder, in the
logs of the latest launch's jobs, and in what Slurm remembers of jobs that left none.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.host.slurm import JobState, ending
from pipeline.planning.estimate import hours_text
from pipeline.planning.history import History
from pipeline.planning.job_log import ended_well, last_words, nothing_started, tail_of
from pipeline.planning.preflight import MIN_FREE_BYTES
from pipeline.planning.progress import Progress
from pipeline.planning.submit import job_log
from pipeline.records.layout import Layout, file_name
from pipeline.spec.sweep import SweepSpec

MAX_WORDS = 400


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that keeps a sweep from its end."""

    what: str
    do: str


def findings(
    layout: Layout,
    spec: SweepSpec,
    progress: Progress,
    past: History,
    jobs: Sequence[Mapping[str, Any]],
    states: Mapping[str, JobState],
) -> list[Finding]:
    """Return what keeps an unfinished sweep from getting on.

    Args:
        layout: the results folder.
        spec: the sweep.
        progress: of it, now.
        past: of it.
        jobs: the Slurm jobs of the latest launch, as its record has them.
        states: the state of each job.
    """
    ended = [job for job in jobs if states[job["job_id"]] is JobState.ENDED]
    alive = len(ended) < len(jobs) or bool(progress.workers)
    return [
        *_disk(layout),
        *_jobs_without_results(layout, ended),
        *_cut_short(spec, past),
        *_hours(spec, past),
        *_drain(layout),
        *([] if alive else _nothing_alive(layout, spec, progress)),
    ]


def _disk(layout: Layout) -> Iterator[Finding]:
    free = shutil.disk_usage(layout.root).free
    if free < MIN_FREE_BYTES:
        yield Finding(
            what=f"the disk of {layout.root} is full: {free / 1e6:,.0f} MB are free; results wait "
            "in the workers' memory, for up to 15 minutes",
            do="free some space; a quota counts as well (python -m pipeline.doctor)",
        )


def _jobs_without_results(layout: Layout, ended: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what jobs said that began nothing or did not come to their own end, alike ones once."""
    journals = [path.stem for path in layout.journal_paths()]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for job in ended:
        text = tail_of(job_log(layout, job["job_id"]))
        has_journal = any(f"-{file_name(job['job_id'])}-r" in name for name in journals)
        if text is not None and ended_well(text) and not nothing_started(text):
            continue  # it did its part, or others had left nothing to do
        if text is None and has_journal:
            continue
        if text is None:
            said = f"never started: {ending(job['job_id']) or 'Slurm gives no reason'}"
        else:
            said = last_words(text) or "it printed nothing"
        # Alike but for names and numbers.
        groups.setdefault((job["role"], re.sub(r"\d+", "#", said)), []).append(
            {**job, "said": said}
        )
    for (role, _), alike in groups.items():
        first = alike[0]
        log = job_log(layout, first["job_id"])
        yield Finding(
            what=f"{_n(len(alike), f'{role} job')} ended without results "
            f"({first['job_id']}{', ...' if len(alike) > 1 else ''}): {first['said']:.{MAX_WORDS}}",
            do=f"the whole log: {log}" if log.exists() else "fix this, then launch again",
        )


def _cut_short(spec: SweepSpec, past: History) -> Iterator[Finding]:
    cut = {r.run_id: past.cut_short_s[r.run_id] for r in past.todo if r.run_id in past.cut_short_s}
    if not cut:
        return
    longest = max(cut, key=lambda run_id: cut[run_id])
    yield Finding(
        what=f"{_n(len(cut), 'run')} did not end before a job did: {longest} had "
        f"{cut[longest] / 60:.0f} min",
        do=f"more than cluster.rollout.time_min={spec.cluster.rollout.time_min}, and launch again",
    )


def _hours(spec: SweepSpec, past: History) -> Iterator[Finding]:
    if past.todo and spec.max_gpu_hours is not None and past.used_gpu_hours >= spec.max_gpu_hours:
        yield Finding(
            what=f"{hours_text(past.used_gpu_hours)} GPU-hours are used, of "
            f"{hours_text(spec.max_gpu_hours)} "
            "allowed (max_gpu_hours); workers start nothing more",
            do="launch again with a higher cap, or stop here",
        )


def _drain(layout: Layout) -> Iterator[Finding]:
    if layout.drain_request.exists():
        yield Finding(what="a drain was requested: nothing new starts", do="launch again to resume")


def _nothing_alive(layout: Layout, spec: SweepSpec, progress: Progress) -> Iterator[Finding]:
    missing = progress.planned - progress.finished
    if missing:
        yield Finding(
            what=f"{_n(missing, 'run')} of {progress.planned} without a result, and no worker "
            "is running",
            do="launch again to run what is missing",
        )
    ungraded = progress.finished - progress.graded
    if spec.grade and ungraded and not missing:
        yield Finding(
            what=f"{_n(ungraded, 'finished run')} without a grade, and no grader is running",
            do=f"python -m pipeline.grade {layout.root} (or the same launch again)",
        )


def _n(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
