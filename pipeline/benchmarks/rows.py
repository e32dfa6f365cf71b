"""Rows of a benchmark: reading a dataset file, choosing instances, naming images.

A row is one instance, kept as the plain dict that its format's grader takes. Owns what is the same
in every format; what a row must have beside an id is its format's to check, and which format and
file belong to a benchmark is the registry's.
"""

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipeline.fields.identity import digest_of, science_of
from pipeline.plural import plural
from pipeline.spec.sweep import WORKDIR

REGISTRY = "docker.io"
_TAKEN = ("/tmp", "/home", "/root", "/proc", "/dev", "/sys")
"""Folders that sandboxes use themselves."""

RowT = TypeVar("RowT", bound=Mapping[str, Any])


class DatasetError(ValueError):
    """A dataset that is missing, malformed, or lacks an instance that was asked for."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `.json`, `.jsonl` or `.parquet` file, in the file's order.

    Raises:
        DatasetError: the file is missing, empty, of another kind or not readable.
    """
    if path.suffix not in _READERS:
        raise DatasetError(f"{path}: a dataset ends in {', '.join(_READERS)}")
    if not path.is_file():
        raise DatasetError(f"no dataset at {path}; give its place with dataset=PATH")
    rows = _READERS[path.suffix](path)
    if not rows:
        raise DatasetError(f"{path} has no rows")
    return rows


def check_identities(rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
    """Raise `DatasetError` unless each row has an id that can name files, and no two the same.

    Every format checks this, beside what it needs itself.
    """
    for number, row in enumerate(rows, start=1):
        name = place_of(row, number, source)
        if not re.fullmatch(r"[\w.+-]+", str(row["instance_id"])):
            raise DatasetError(
                f"{name}: an instance_id has letters, digits and ._+- only: it names files"
            )
        try:
            row_sha256(row)
        except (TypeError, ValueError) as error:
            raise DatasetError(f"{name}: it holds a value that JSON cannot: {error}") from None
    counts = Counter(str(row["instance_id"]) for row in rows)
    twice = [instance_id for instance_id, count in counts.items() if count > 1]
    if twice:
        raise DatasetError(f"{source}: instances given more than once: {_some(twice)}")


def place_of(row: Mapping[str, Any], number: int, source: str) -> str:
    """Return how errors name the `number`-th row of `source`, from 1."""
    return f"{source}, row {number} ({row.get('instance_id', 'without instance_id')})"


def with_workdir(rows: Sequence[dict[str, Any]], workdir: str) -> list[dict[str, Any]]:
    """Return the rows with the place of their repository, where it is not the usual one.

    A row's own `workdir` stays, an empty one is none. The column is part of the row's digest, so
    that runs with another working directory, which their prompts name, have ids of their own.

    Raises:
        DatasetError: a working directory that no sandbox can have.
    """
    placed = [
        row if workdir == WORKDIR or row.get("workdir") else {**row, "workdir": workdir}
        for row in rows
    ]
    for number, row in enumerate(placed, start=1):
        folder = str(row.get("workdir") or WORKDIR)
        if not re.fullmatch(r"(/[\w.+-]+)+", folder) or folder.startswith(_TAKEN):
            raise DatasetError(
                f"{place_of(row, number, 'workdir')}: {folder!r} cannot hold a repository; give "
                f"an absolute path of plain characters that is not below {', '.join(_TAKEN)}"
            )
    return placed


def select_rows(
    rows: Sequence[RowT],
    *,
    instance_ids: Sequence[str] | None = None,
    limit: int | None = None,
) -> list[RowT]:
    """Return the rows that were asked for, in the dataset's order.

    Args:
        rows: the dataset's.
        instance_ids: instances to keep; None or empty: all.
        limit: keep so many from the top; None: all.

    Raises:
        DatasetError: an instance that no row has (the error names the nearest), or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise DatasetError(f"a limit of {limit} leaves nothing to run; give 1 or more")
    chosen = list(rows)
    if instance_ids:
        known = {str(row["instance_id"]) for row in rows}
        unknown = [one for one in dict.fromkeys(instance_ids) if one not in known]
        if unknown:
            raise DatasetError("\n".join(_not_in_dataset(one, known) for one in unknown))
        wanted = set(instance_ids)
        chosen = [row for row in rows if str(row["instance_id"]) in wanted]
    return chosen[:limit]


def stratified(rows: Sequence[RowT], n: int, seed: int) -> list[RowT]:
    """Return `n` rows, each repository in proportion, in the dataset's order.

    Shares are rounded by largest remainders; while `n` allows, every repository has one. Which
    rows a repository gives depends only on the seed and the instance ids, so that neither the
    order of the file nor the rows of other repositories matter.

    Raises:
        DatasetError: `n` is below 1 or above the number of rows.
    """
    if not 1 <= n <= len(rows):
        raise DatasetError(f"cannot draw {n} of {plural(len(rows), 'instance')}")
    by_repo: dict[str, list[str]] = {}
    for row in rows:
        by_repo.setdefault(str(row["repo"]), []).append(str(row["instance_id"]))
    counts = _shares({repo: len(ids) for repo, ids in by_repo.items()}, n)
    drawn = {
        instance_id
        for repo, ids in by_repo.items()
        for instance_id in sorted(ids, key=lambda one: _draw(seed, one))[: counts[repo]]
    }
    return [row for row in rows if str(row["instance_id"]) in drawn]


def row_sha256(row: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a row's canonical JSON, which is part of every run's identity."""
    return digest_of(science_of(row), length=64)


def image_reference(row: Mapping[str, Any]) -> str:
    """Return a row's image with its registry, in lower case as registries demand.

    A name whose first part looks like a host (it has a dot or a port, or is `localhost`) keeps it.
    """
    image = str(row["image"]).lower()
    host, slash, _ = image.partition("/")
    has_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return image if has_host else f"{REGISTRY}/{image}"


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, list):
        raise DatasetError(f"{path} must hold a list of rows, not a {type(data).__name__}")
    return [_object(row, f"{path}, row {number}") for number, row in enumerate(data, start=1)]


def _jsonl_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path}, line {number} is no JSON: {error}") from None
        rows.append(_object(row, f"{path}, line {number}"))
    return rows


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{path} is no Parquet file: {error}") from None
    return rows


_READERS: Mapping[str, Callable[[Path], list[dict[str, Any]]]] = {
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": _parquet_rows,
}


def _object(row: Any, place: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DatasetError(f"{place} must be an object, not a {type(row).__name__}")
    return row


def _not_in_dataset(instance_id: str, known: set[str]) -> str:
    near = difflib.get_close_matches(instance_id, sorted(known), n=3)
    hint = f"the nearest are {', '.join(near)}" if near else f"it has {_some(sorted(known))}"
    return f"no instance {instance_id!r} in the dataset; {hint}"


def _some(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _draw(seed: int, instance_id: str) -> str:
    return hashlib.sha256(f"{seed}:{instance_id}".encode()).hexdigest()


def _shares(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """Return how many of `n` each repository gives, by largest remainders."""
    total = sum(sizes.values())
    least = 1 if n >= len(sizes) else 0
    counts = {repo: max(least, n * size // total) for repo, size in sizes.items()}
    for repo in _corrections(sizes, counts, n):
        counts[repo] += 1 if sum(counts.values()) < n else -1
    return counts


def _corrections(sizes: Mapping[str, int], counts: Mapping[str, int], n: int) -> Iterator[str]:
    """Yield, while the counts miss `n`, the repository that is furthest from its exact share."""
    total = sum(sizes.values())
    while (gap := n - sum(counts.values())) != 0:
        sign = 1 if gap > 0 else -1
        candidates = [
            repo
            for repo, size in sizes.items()
            if (counts[repo] < size if gap > 0 else counts[repo] > 1)
        ]
        yield max(
            sorted(candidates), key=lambda repo: sign * (n * sizes[repo] - counts[repo] * total)
        )
