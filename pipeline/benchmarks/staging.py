"""Bringing a dataset to the site: one checked file with its digest beside it.

Owns `stage dataset`: a local file is copied as it is, an export of several files becomes one
Parquet file, a name on the Hugging Face hub is fetched first. Jobs read the result and download
nothing.
"""

import hashlib
import importlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError
from pipeline.benchmarks.swe_bench.columns import check_rows, load_rows
from pipeline.host.files import replace_bytes

_SUFFIXES = (".json", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedDataset:
    """What was staged, as its manifest has it."""

    file: str
    source: str
    sha256: str
    n_rows: int
    n_bytes: int


def stage_dataset(source: str, target: Path, *, revision: str | None = None) -> StagedDataset:
    """Put the dataset at `source` at `target`, with a manifest beside it.

    Args:
        source: a `.json`, `.jsonl` or `.parquet` file, a folder with Parquet or Arrow files (as
            the `datasets` library saves and the hub serves them), or a name on the hub.
        target: a folder, or with one of those endings the file itself; made if absent.
        revision: on the hub; a commit, so that it can be told later which one it was.

    Raises:
        DatasetError: nothing usable is there, or its rows are not as they should be.
    """
    path = Path(source)
    if not path.exists():
        path = _download(source, revision)
    if path.is_file() and path.suffix in _SUFFIXES:
        rows, data, name = load_rows(path), path.read_bytes(), path.name
    else:
        rows = _export_rows(path)
        check_rows(rows, source=source)
        data, name = _as_parquet(rows), f"{Path(source).name}.parquet"
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


def _export_rows(folder: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not folder.is_dir():
        raise DatasetError(
            f"{folder} is neither a dataset file ({', '.join(_SUFFIXES)}) nor a folder"
        )
    parquet, arrow = sorted(folder.rglob("*.parquet")), sorted(folder.rglob("*.arrow"))
    if not parquet and not arrow:
        raise DatasetError(f"{folder} holds no .parquet and no .arrow file")
    rows: list[dict[str, Any]] = []
    for path in parquet:
        rows += pq.read_table(path).to_pylist()
    for path in [] if parquet else arrow:
        with pa.memory_map(str(path)) as stream:
            rows += pa.ipc.open_stream(stream).read_all().to_pylist()
    return rows


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
