"""Bringing a dataset to the site: one checked file with its digest beside it.

Owns `stage dataset`: a local file is copied as it is, an export of several files and a folder of
Harbor's tasks become one Parquet file, a name on the Hugging Face hub is fetched first. Jobs read
the result and download nothing.
"""

import hashlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.benchmarks.harbor.tasks import task_folders, task_row
from pipeline.benchmarks.rows import DatasetError, check_identities, read_rows
from pipeline.benchmarks.swe_bench.columns import check_columns, refuse_ungradable, ungradable
from pipeline.host.files import replace_bytes
from pipeline.plural import plural

_SUFFIXES = (".json", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedDataset:
    """What was staged, as its manifest has it."""

    file: str
    source: str
    sha256: str
    n_rows: int
    n_bytes: int
    split: str | None = None
    """Which one, where the source has several."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Instances that were left out because no patch can be graded for them, and why."""


def stage_dataset(
    source: str,
    target: Path,
    *,
    revision: str | None = None,
    split: str | None = None,
    drop_ungradable: bool = False,
) -> StagedDataset:
    """Put the dataset at `source` at `target`, with a manifest beside it.

    Args:
        source: a `.json`, `.jsonl` or `.parquet` file, a folder with Parquet or Arrow files (as
            the `datasets` library saves and the hub serves them) or with Harbor's task folders, or
            a name on the hub.
        target: a folder, or with one of those endings the file itself; made if absent.
        revision: on the hub; a commit, so that it can be told later which one it was.
        split: which of several splits; splits are never mixed.
        drop_ungradable: leave out rows that no patch can be graded for, and tasks that need what
            is not done here, instead of refusing all.

    Raises:
        DatasetError: nothing usable is there, it has several splits and none is named, or its rows
            are not as they should be.
    """
    path = Path(source)
    if not path.exists():
        path = _download(source, revision)
    tasks = task_folders(path) if path.is_dir() else []
    dropped: dict[str, str] = {}
    if (tasks or path.is_file()) and split is not None:
        raise DatasetError(f"{path} has no splits: leave --split out")
    if tasks:
        rows, dropped = _task_rows(tasks, drop=drop_ungradable)
        data, name = b"", f"{path.resolve().name}.parquet"
    elif path.is_file() and path.suffix in _SUFFIXES:
        rows, data, name = read_rows(path), path.read_bytes(), path.name
    else:
        rows, name = _split_rows(path, split), Path(source).name
        data, name = b"", f"{name}.parquet" if split is None else f"{name}-{split}.parquet"
    if tasks:
        check_identities(rows, source=source)
    else:
        check_columns(rows, source=source)
        if drop_ungradable:
            rows, dropped = _gradable(rows, source=source)
        refuse_ungradable(rows, source=source)
    if dropped or not data:
        data, name = _as_parquet(rows), str(Path(name).with_suffix(".parquet"))
    folder = target
    if target.suffix in _SUFFIXES:
        folder = target.parent
        data = _in_form(data, rows, name, target)
        name = target.name
    folder.mkdir(parents=True, exist_ok=True)
    replace_bytes(folder / name, data)
    staged = StagedDataset(
        file=name,
        source=source if revision is None else f"{source}@{revision}",
        sha256=hashlib.sha256(data).hexdigest(),
        n_rows=len(rows),
        n_bytes=len(data),
        split=split,
        dropped=dropped,
    )
    manifest = json.dumps(asdict(staged), indent=1).encode() + b"\n"
    replace_bytes(folder / f"{name}.manifest.json", manifest)
    return staged


def _in_form(data: bytes, rows: list[dict[str, Any]], name: str, target: Path) -> bytes:
    """Return the rows as the ending of `target` says; what has that form already stays as it is."""
    if Path(name).suffix == target.suffix:
        return data
    if target.suffix == ".parquet":
        return _as_parquet(rows)
    raise DatasetError(f"{name} is not made into {target.suffix}; name a .parquet file")


def _gradable(
    rows: Sequence[dict[str, Any]], *, source: str
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows that patches can be graded for, and why not for the others, by instance.

    Raises:
        DatasetError: none can.
    """
    reasons = {str(row["instance_id"]): reason for row in rows if (reason := ungradable(row))}
    kept = [row for row in rows if str(row["instance_id"]) not in reasons]
    if not kept:
        raise DatasetError(
            f"{source}: none of its {plural(len(rows), 'row')} can be graded: {reasons}"
        )
    return kept, reasons


def _task_rows(tasks: Sequence[Path], *, drop: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of task folders, and why not of the others, by instance.

    Raises:
        DatasetError: some have none and are not to be dropped, or all.
    """
    rows, refused = [], {}
    for folder in tasks:
        try:
            rows.append(task_row(folder))
        except DatasetError as error:
            refused[folder.name] = str(error)
    if refused and not (drop and rows):
        some = "; ".join(list(refused.values())[:5])
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        raise DatasetError(
            f"{len(refused)} of {len(tasks)} tasks cannot be run: {some}{more}. "
            "Leave them out: --drop-ungradable"
        )
    return rows, refused


def _split_rows(folder: Path, split: str | None) -> list[dict[str, Any]]:
    """Return the rows of one split of an exported folder."""
    if not folder.is_dir():
        raise DatasetError(
            f"{folder} is neither a dataset file ({', '.join(_SUFFIXES)}) nor a folder"
        )
    parquet, arrow = sorted(folder.rglob("*.parquet")), sorted(folder.rglob("*.arrow"))
    if not parquet and not arrow:
        raise DatasetError(f"{folder} holds no .parquet and no .arrow file")
    splits: dict[str, list[Path]] = {}
    for path in parquet or arrow:
        splits.setdefault(_split_of(path.relative_to(folder)), []).append(path)
    if split is None and len(splits) > 1:
        raise DatasetError(
            f"{folder} has {len(splits)} splits, which are never mixed: "
            f"{_listed(splits)}; name one with --split"
        )
    if split is not None and split not in splits:
        raise DatasetError(f"{folder} has no split {split!r}; it has {_listed(splits)}")
    paths = splits[split] if split is not None else next(iter(splits.values()))
    return [row for path in paths for row in _table_of(path).to_pylist()]


_SHARD = re.compile(r"(?P<name>.+?)-\d+-of-\d+(?:-\w+)?")
_SPLIT_NAMES = frozenset({"train", "dev", "validation", "valid", "val", "test", "full", "lite"})


def _split_of(path: Path) -> str:
    """Return the split that a file of an export belongs to; empty where its path names none.

    The hub has `data/SPLIT-00000-of-00001.parquet` or `CONFIG/SPLIT/0000.parquet`, the `datasets`
    library `SPLIT/data-00000-of-00001.arrow`.
    """
    folders = [part for part in path.parts[:-1] if part != "data"]
    shard = _SHARD.fullmatch(path.stem)
    name = shard["name"] if shard else path.stem if path.stem in _SPLIT_NAMES else "data"
    return "/".join([*folders, *([name] if name != "data" else [])])


def _listed(splits: Mapping[str, Sequence[Path]]) -> str:
    counts = {name: sum(map(_n_rows, paths)) for name, paths in splits.items()}
    return ", ".join(f"{name or '(no name)'} ({plural(n, 'row')})" for name, n in counts.items())


def _n_rows(path: Path) -> int:
    return int(_table_of(path).num_rows)


def _table_of(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.memory_map(str(path)) as stream:
        return pa.ipc.open_stream(stream).read_all()


def _as_parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd")
    return bytes(sink.getvalue())


def _download(name: str, revision: str | None) -> Path:
    if name.count("/") != 1:
        raise DatasetError(f"there is no {name}, and it is no name on the hub (OWNER/NAME) either")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise DatasetError(
            f"there is no {name} here; to fetch it from the hub install huggingface_hub, or copy a "
            "file of its rows and name that"
        ) from error
    return Path(hub.snapshot_download(name, repo_type="dataset", revision=revision))
