"""Folders that leave the house: the reproducibility package and the dataset.

A package is a results folder without journals: lock, plan, rows and tables, so that `analyze` runs
on it as on the original; beside them the prompts verbatim, the analysis plan, a script with the
one command, and checksums of everything. Both kinds of folder appear complete or not at all.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from pipeline.records.dataset_card import dataset_card, dataset_files
from pipeline.records.layout import Layout, file_name
from pipeline.records.lock import Lock, read_lock
from pipeline.records.predictions import cell_name
from pipeline.records.rebuild import all_run_tables, sent_calls, tool_lists
from pipeline.records.schema import records_page
from pipeline.spec.parse import plain

CHECKSUMS = "SHA256SUMS"

_TEMPLATES = (
    *("system_template", "instance_template", "plan_instructions", "observation_template"),
    "format_error_template",
)

_SCRIPT = """#!/bin/sh
# Checks the files, then recomputes every table, figure and number of the report from the records.
# Needs this version of planprune: see versions.txt.
set -eu
cd "$(dirname "$0")"
sha256sum --quiet --check SHA256SUMS
exec python -m pipeline.analyze . --out reproduced "$@"
"""

_README = """# Reproducibility package: {sweep}

`sh reproduce.sh` checks all files and writes the report to `reproduced/`. `report/` is the report
as it was.

| file | what |
|---|---|
| `sweep.lock.yaml` | the resolved configuration, versions, revisions and digests |
| `analysis.yaml` | the analysis plan, fixed before the first run |
| `plan.parquet`, `instances.parquet` | the runs that were planned, and the benchmark's rows |
| `tables/` | all records; `records.md` explains every column |
| `prompts/` | templates and tool lists verbatim, and of every arm the first call of each kind |
| `versions.txt` | commit and package versions |
| `SHA256SUMS` | checksums of everything here |
"""


def write_package(layout: Layout, out: Path) -> None:
    """Write the reproducibility package to `out`, which must not exist.

    Raises:
        FileExistsError: there is something at `out`.
        LockError: the folder has no lock: it was not launched, and nothing fixes its analysis.
    """
    lock = read_lock(layout.lock)
    with_folder(out, lambda folder: _fill_package(layout, lock, folder))


def write_dataset(layout: Layout, out: Path) -> None:
    """Write the tables as a dataset folder with a card to `out`, which must not exist.

    Raises:
        FileExistsError: there is something at `out`.
    """
    with_folder(out, lambda folder: _fill_dataset(layout, folder))


def with_folder(out: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `out` by filling a temporary one beside it and renaming that.

    Raises:
        FileExistsError: there is something at `out`.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; remove it or name another folder with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir()
    try:
        fill(temporary)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill_dataset(layout: Layout, folder: Path) -> None:
    files = dataset_files(layout)
    for name, paths in files.items():
        _copy(paths, folder / "data" / name)
    (folder / "README.md").write_text(dataset_card(layout, files), encoding="utf-8")
    (folder / "records.md").write_text(records_page(), encoding="utf-8")


def _fill_package(layout: Layout, lock: Lock, folder: Path) -> None:
    copied = Layout(folder)
    _copy([p for p in (layout.lock, layout.plan, layout.dataset) if p.exists()], folder)
    for name, paths in dataset_files(layout).items():
        _copy(paths, copied.table(name))
    if layout.report.is_dir():
        shutil.copytree(layout.report, copied.report)
    texts = {
        "README.md": _README.format(sweep=lock.spec.name),
        "records.md": records_page(),
        "reproduce.sh": _SCRIPT,
        "analysis.yaml": yaml.safe_dump(plain(lock.spec.analysis), sort_keys=False),
        "versions.txt": "".join(f"{line}\n" for line in _versions(lock)),
        **{f"prompts/{name}": text for name, text in _prompts(layout, lock)},
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / CHECKSUMS).write_text("".join(_checksums(folder)), encoding="utf-8")


def _copy(paths: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        shutil.copyfile(path, folder / path.name)


def _versions(lock: Lock) -> Iterator[str]:
    yield f"commit {lock.commit or 'unknown'}"
    if lock.dirty_sha256:
        yield f"uncommitted changes, sha256 {lock.dirty_sha256}"
    yield from (f"{name}=={version}" for name, version in sorted(lock.versions.items()))


def _prompts(layout: Layout, lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield templates and tool lists verbatim, then what each arm first sent for each kind."""
    for agent in lock.spec.agents.values():
        for name in _TEMPLATES:
            yield f"{file_name(agent.name)}.{name}.j2", getattr(agent, name)
    for sha256, tools in tool_lists(layout).items():
        yield f"tools.{sha256[:12]}.json", tools
    seen: set[str] = set()
    for tables in all_run_tables(layout):
        for call in sent_calls(tables.messages, tables.calls):
            name = f"{file_name(cell_name(tables.run))}.{call.kind}.json"
            if name not in seen:
                seen.add(name)
                yield f"sent/{name}", _json(call.messages)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _checksums(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            yield f"{digest}  {path.relative_to(folder).as_posix()}\n"
