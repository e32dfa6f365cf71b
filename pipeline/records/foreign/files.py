"""Trajectory files, found and read by what they hold: their names do not tell.

mini calls its file as it was told to, Harbor calls every file alike and lays other JSON beside
it. In a folder every `.json` is looked into; what is no trajectory is passed over. A file that was
named itself, or whose name says `.traj.json`, is read or refused with the reason.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.records.foreign.instances import instance_of
from pipeline.records.foreign.mini import trajectory_from_mini
from pipeline.records.foreign.run import Count, ForeignRun

SUFFIX = ".traj.json"
_MARK = b'"trajectory_format"'


def trajectory_files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or every trajectory file below the folder, by name."""
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*.json")):
        if file.is_file() and (file.name.endswith(SUFFIX) or _MARK in file.read_bytes()):
            yield file


def run_in(path: Path, count: Count) -> ForeignRun:
    """Return the run that a trajectory file holds, with its instance named.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no trajectory; the message says why.
    """
    return run_of(json.loads(path.read_bytes()), path, count)


def run_of(data: Any, path: Path, count: Count) -> ForeignRun:
    """Return the run in the content of the trajectory file at `path`, with its instance named.

    Raises:
        ValueError: it is no trajectory; the message says why.
    """
    try:
        run = trajectory_from_mini(data, count)
        return replace(run, instance_id=instance_of(run, path))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"a field is not as it should be: {type(error).__name__}: {error}"
        ) from error
