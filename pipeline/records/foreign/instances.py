"""Which task a recorded run is of, where its file does not say, and whether two runs agree on it.

File names do not tell: Harbor calls every trajectory alike, and so does mini by default. A run is
named by its task's text; a name that a benchmark gave (`owner__name-123`) is kept. One name with
two texts is an error, since seeds would pair different tasks.
"""

import hashlib
import re
from pathlib import Path

from pipeline.records.foreign.run import ForeignRun
from pipeline.records.masking import masked
from pipeline.spec.run import slugged

_BENCHMARK_ID = re.compile(r"[\w.-]+__[\w.-]+-\d+")
_TRIAL = re.compile(r"(?P<task>.+)__[A-Za-z0-9]{4,10}")
"""A trial's folder in a Harbor job: the task's name, then a random part."""
_NAMED_BY_WORDS = re.compile(r"[\w.-]+-(?P<digest>[0-9a-f]{8})")
_ISSUE = re.compile(r"<(pr_description|issue|task)>(.*?)</\1>", re.DOTALL)
_SUFFIX = re.compile(r"(\.traj|\.trajectory)?\.\w+$")


def task_sha256(run: ForeignRun) -> str:
    """Return the hash of what a run was asked, white space and the prompt around it aside."""
    return _sha256(run.task)


def named_by_task(task: str) -> str:
    """Return the instance that a task's text stands for: its first words and its hash."""
    # Two underscores would be an owner and a repository.
    words = re.sub("_+", "_", slugged("_".join(masked(task).split()[:5]).lower()))
    return f"{words[:40] or 'task'}-{_sha256(task)[:8]}"


def instance_of(run: ForeignRun, path: Path) -> str:
    """Return the instance of the run that `path` holds.

    The file's own id; else the file's name where a benchmark gave it; else the task's name in a
    Harbor job, or its first words, with the hash of its text.
    """
    stem = _SUFFIX.sub("", path.name)
    if run.instance_id:
        return str(run.instance_id)
    if _BENCHMARK_ID.fullmatch(stem):
        return stem
    trial = _TRIAL.fullmatch(path.parent.parent.name) if path.parent.name == "agent" else None
    if trial is None:
        return named_by_task(run.task)
    return f"{slugged(trial['task'])[:40] or 'task'}-{task_sha256(run)[:8]}"


def wordless(instance_id: str) -> str:
    """Return an instance's name without its task's first words; a benchmark's stays as it is."""
    found = _NAMED_BY_WORDS.fullmatch(instance_id)
    return instance_id if found is None else f"task-{found['digest']}"


def _sha256(task: str) -> str:
    issue = _ISSUE.search(task)
    words = " ".join((issue[2] if issue else task).split())
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()
