"""Trajectory files, found and read by what they hold: their names do not tell.

mini calls its file as it was told to, Harbor calls every file alike and lays other JSON beside
it, session logs are called after dates. In a folder every `.json`, `.jsonl` and `.db` is looked
into; what is no trajectory is passed over. A file that was named itself, or whose name says
`.traj.json`, is read or refused with the reason. Nothing is ever written beside a source.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.records.foreign.atif import continuations_named, is_atif, run_from_atif
from pipeline.records.foreign.claude_code import (
    is_claude_code,
    repeated_calls,
    run_from_claude_code,
)
from pipeline.records.foreign.codex import is_codex, run_from_codex
from pipeline.records.foreign.instances import instance_of
from pipeline.records.foreign.mini import trajectory_from_mini
from pipeline.records.foreign.opencode import is_opencode, runs_from_opencode
from pipeline.records.foreign.run import Count, ForeignRun

SUFFIX = ".traj.json"
_MINI, _ATIF = b'"trajectory_format"', b'"ATIF-v'
_HEAD_BYTES = 1 << 18
"""Of a log, enough to tell whose it is."""


def trajectory_files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or every trajectory file below the folder, by name.

    A Harbor trial may hold one run in two files: mini's own is read and ATIF's passed over; a
    session log below ATIF's folder is passed over, since only the trial says how it ended. So is a
    file that another one goes on in.
    """
    if not path.is_dir():
        yield path
        return
    own: set[Path] = set()
    logs: list[Path] = []
    atif: list[Path] = []
    goes_on: set[Path] = set()
    for file in sorted(path.rglob("*")):
        if file.suffix not in (".json", ".jsonl", ".db") or not file.is_file():
            continue
        if _is_database(file):
            yield file
            continue
        content = _head(file) if file.suffix == ".jsonl" else file.read_bytes()
        if file.suffix == ".jsonl" and (is_claude_code(content) or is_codex(content)):
            logs.append(file)
        elif file.suffix == ".json" and (file.name.endswith(SUFFIX) or _MINI in content):
            own.add(file.parent)
            yield file
        elif file.suffix == ".json" and _ATIF in content:
            atif.append(file)
            goes_on.update(map(file.with_name, continuations_named(content)))
    trials = {file.parent for file in atif}
    yield from (file for file in logs if not trials & set(file.parents))
    yield from (file for file in atif if file.parent not in own and file not in goes_on)


def runs_in(
    path: Path, count: Count, billed_elsewhere: Collection[str] = ()
) -> Iterator[ForeignRun]:
    """Yield the runs that a file holds, each with its instance named: one, or a database's.

    Args:
        path: the file.
        count: tokens of a text.
        billed_elsewhere: ids of its messages that another file bills; see `repeated_in`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no trajectory; the message says why.
    """
    try:
        found = (
            runs_from_opencode(path, count)
            if _is_database(path)
            else [_run_in(path, count, billed_elsewhere)]
        )
        for run in found:
            yield replace(run, instance_id=instance_of(run, path))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"a field is not as it should be: {reason}") from error


def repeated_in(files: Iterable[Path]) -> dict[Path, frozenset[str]]:
    """Return, for each file that repeats messages of another, the ids of those billed there.

    Unreadable files are passed over; reading them says why.
    """
    logs = []
    for path in files:
        try:
            if path.suffix == ".jsonl" and is_claude_code(_head(path)):
                logs.append(path)
        except OSError:
            continue
    return {path: ids for path, ids in repeated_calls(logs).items() if ids}


def _run_in(path: Path, count: Count, billed_elsewhere: Collection[str]) -> ForeignRun:
    if path.suffix == ".jsonl":
        head = _head(path)
        if is_claude_code(head):
            return run_from_claude_code(path, count, billed_elsewhere)
        if is_codex(head):
            return run_from_codex(path, count)
        raise ValueError("it is neither a session of Claude Code nor a rollout of Codex")
    data: Any = json.loads(path.read_bytes())
    return run_from_atif(data, path, count) if is_atif(data) else trajectory_from_mini(data, count)


def _is_database(path: Path) -> bool:
    return path.suffix == ".db" and is_opencode(path)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
