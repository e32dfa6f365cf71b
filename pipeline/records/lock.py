"""The lock: what a results folder was launched with, written before its first run.

`sweep.lock.yaml` is readable and complete: workers, commands and the analysis take their
configuration from it and from nowhere else. The rows of the instances lie beside it, so that a
folder can be graded again when the dataset file is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline.fields.identity import METHOD_VERSION, method_of, part_name, parts_of
from pipeline.spec.parse import SpecError, parsed, plain
from pipeline.spec.run import Cell
from pipeline.spec.sweep import SweepSpec, renamed

LOCK_FORMAT = 1


class LockError(ValueError):
    """A file of the folder (lock, plan, rows, tables) is missing, damaged or of another format."""


RESTORE = (
    "restore it from a copy, or move sweep.lock.yaml away and launch the same sweep again: "
    "finished runs are kept"
)


REBUILD = (
    "move the folder's `tables` away and run the command again: they are made anew from the "
    "journals"
)


@contextmanager
def damaged_files_named(path: Path, remedy: str = RESTORE) -> Iterator[None]:
    """Turn what a missing or damaged Parquet file raises into a `LockError` that names it."""
    try:
        yield
    except (OSError, pa.ArrowException, KeyError) as error:
        what = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        raise LockError(f"{path} is {what}; {remedy} ({error})") from None


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Cells or instances that a later launch added."""

    added_at: str
    commit: str | None
    cells: tuple[str, ...]
    instances: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StagedModel:
    """The weights and the server's image that one model's servers read."""

    repo: str | None
    revision: str | None
    files_sha256: str
    """Over the names and digests of all files."""
    image_sha256: str | None = None
    """Of the server's container image; None where none was recorded."""


@dataclass(frozen=True, kw_only=True)
class Lock:
    """One sweep, resolved."""

    spec: SweepSpec
    created_at: str
    """UTC, ISO 8601."""
    commit: str | None
    """Git commit of the checkout; None outside one."""
    dirty_sha256: str | None
    """Hash of the uncommitted diff; None when clean."""
    versions: Mapping[str, str]
    dataset_sha256: str
    rows_sha256: Mapping[str, str]
    """Instance id to the digest of its row."""
    image_digests: Mapping[str, str] = field(default_factory=dict)
    """Instance id to the digest of the image staged for it; empty where no images are used."""
    staged_models: Mapping[str, StagedModel] = field(default_factory=dict)
    """Model to what was staged for it; without those that say nothing of themselves."""
    site: Mapping[str, str] = field(default_factory=dict)
    method_version: str = METHOD_VERSION
    methods: Mapping[str, int] = field(default_factory=dict)
    """Part (a policy's kind, or a spec's class) to the method version of its runs; absent: 1."""
    analysis_sha256: str = ""
    extensions: tuple[Extension, ...] = ()
    format: int = LOCK_FORMAT

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Every cell of the grid by its digest, under the methods that its runs were made with."""
        return {cell.digest_under(self.methods): cell for cell in cells_of(self.spec)}

    @property
    def changed_rules(self) -> list[str]:
        """Rules of this version of the code that the runs were not made by, a line each."""
        made_by = f"; the runs here were made by the rules of commit {self.commit or 'unknown'}"
        lines = []
        if self.method_version != METHOD_VERSION:
            lines.append(f"method_version: {self.method_version} -> {METHOD_VERSION}{made_by}")
        for name, part in sorted((part_name(part), part) for part in parts_of(self.spec)):
            before, now = self.methods.get(name, 1), method_of(part)
            if before != now:
                lines.append(f"{name}: its rules changed, method {before} -> {now}{made_by}")
        return lines


def cells_of(spec: SweepSpec) -> list[Cell]:
    """Return the cells of the grid: models x agents x arms x the arm's seeds, in this order."""
    return [
        Cell(
            benchmark=spec.benchmark.name,
            model=model,
            agent=agent,
            arm=arm,
            seed=seed,
            forked_from=spec.fork_source(name),
        )
        for model in spec.models.values()
        for agent in spec.agents.values()
        for name, arm in spec.arms.items()
        for seed in spec.seeds_of(name)
    ]


def lock_text(lock: Lock) -> str:
    """Return the lock file's content."""
    return yaml.safe_dump(plain(lock), sort_keys=False, allow_unicode=True, width=100)


def read_lock(path: Path) -> Lock:
    """Return the lock of a results folder.

    Raises:
        LockError: no lock there, or one that this version cannot read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise LockError(
            f"{path.parent} is no results folder: it has no {path.name}. "
            "Launch a sweep into it, or name the folder of one."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(f"{path} cannot be read: {error}") from None
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise LockError(f"{path} is damaged; {RESTORE}. It is no YAML: {error}") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != LOCK_FORMAT:
        raise LockError(f"{path} has lock format {found}; this version reads {LOCK_FORMAT}")
    try:
        return parsed(Lock, {**data, "spec": renamed(data["spec"])})
    except (SpecError, KeyError, AttributeError) as error:
        raise LockError(f"{path} is damaged, or of another version; {RESTORE}:\n{error}") from None


def rows_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return instances.parquet's content: the rows as they were in the dataset."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), sink, compression="zstd")
    return bytes(sink.getvalue())


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sweep's rows by instance id.

    Raises:
        LockError: the file is missing or damaged.
    """
    with damaged_files_named(path):
        return {row["instance_id"]: row for row in pq.read_table(path).to_pylist()}
