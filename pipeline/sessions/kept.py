"""What came of large logs, kept between runs: a second look at the same sessions is quick.

Keyed by the bytes of the file and by all that a job says of it, the program's own files included,
so that nothing stale is ever taken. Kept below the user's cache folder, for that user's eyes only;
a damaged entry is as good as none.
"""

import hashlib
import pickle
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from pipeline.host.environment import environment
from pipeline.host.files import replace_bytes
from pipeline.sessions.jobs import Done, Job, replayed

MIN_BYTES = 1_000_000
"""Smaller files are replayed as quickly as they are looked up."""
MAX_AGE_S = 30 * 86_400.0
_PACKAGE = Path(__file__).resolve().parents[1]


def kept_folder() -> Path:
    """Return where results are kept."""
    here = environment()
    base = here.get("XDG_CACHE_HOME") or Path(here.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "planprune" / "replay"


def replayed_or_kept(job: Job) -> Done:
    """Return what came of a job, from an earlier run where that was the same."""
    try:
        # Only logs stand for themselves: a database has a journal beside it, a run may go on in
        # another file.
        if job.source.suffix != ".jsonl" or job.source.stat().st_size < MIN_BYTES:
            return replayed(job)
        place = kept_folder() / f"{_key(job)}.pickle"
    except OSError:
        return replayed(job)
    try:
        found = pickle.loads(place.read_bytes())
    except (OSError, ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError):
        found = None
    if isinstance(found, Done):
        return found
    done = replayed(job)
    if not done.left_out:
        _keep(place, done)
    return done


def forget_old(folder: Path, *, now_s: float) -> None:
    """Remove results that nobody asked for in a month."""
    for path in folder.glob("*.pickle"):
        try:
            if now_s - path.stat().st_mtime > MAX_AGE_S:
                path.unlink()
        except OSError:
            continue


def _keep(place: Path, done: Done) -> None:
    """Write a result; a full or read-only disk keeps nothing and stops nobody."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        forget_old(place.parent, now_s=time.time())
        replace_bytes(place, pickle.dumps(done))
    except OSError:
        return


def _key(job: Job) -> str:
    with job.source.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    # The bytes stand for the file; readers look at its nearest folders' names too. Sets have no
    # order of their own.
    nearest = Path(*job.source.resolve().parts[-3:])
    rest = replace(job, source=nearest, billed_elsewhere=frozenset())
    said = repr((content, rest, sorted(job.billed_elsewhere), _program()))
    return hashlib.sha256(said.encode()).hexdigest()


@cache
def _program() -> str:
    """Return what this program is made of: the sizes and times of its files."""
    facts = [
        (str(path.relative_to(_PACKAGE)), path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(_PACKAGE.rglob("*.py"))
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()
