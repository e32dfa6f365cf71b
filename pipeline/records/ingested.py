"""Recorded trajectories become finished runs of a results folder.

A file's run id comes from its content, so reading the same file again adds nothing. Several
recordings of one instance by one model are told apart by `seed`, in the order they come. Reading
the files' format is the part of `foreign/`; tokens are counted by whom the door says.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.records.atif_export import record_from_atif_export
from pipeline.records.foreign.files import repeated_in, runs_in
from pipeline.records.foreign.instances import task_sha256
from pipeline.records.foreign.run import Count, ForeignRun
from pipeline.records.journal import RUN_JSON, Journal, json_of
from pipeline.records.layout import Layout
from pipeline.records.masking import masked
from pipeline.records.mini_export import record_from_export
from pipeline.records.run_record import RunRecord
from pipeline.records.states import committed
from pipeline.spec.run import slugged
from pipeline.views.trajectory import Message

ARM = "recorded"
"""The arm of runs that were made elsewhere."""

Key = tuple[str, str]
"""Instance and model: what `seed` counts within."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a trajectory file does not say of itself."""

    sweep: str
    benchmark: str
    counter_name: str
    node: str


@dataclass(slots=True)
class IngestReport:
    """What became of the files."""

    added: list[RunRecord] = field(default_factory=list)
    known: list[Path] = field(default_factory=list)
    """Files whose run is in the folder already."""
    bad: dict[Path, str] = field(default_factory=dict)
    """Files that are no trajectory, with the reason."""


def ingest(
    files: Sequence[Path],
    layout: Layout,
    new_journal: Callable[[], Journal],
    *,
    count: Count,
    origin: Origin,
    account: Callable[[RunRecord], RunRecord],
) -> IngestReport:
    """Append the runs of `files` to a journal of the folder and return what became of each file.

    Args:
        files: Trajectory files.
        layout: The folder; its tables must be up to date.
        new_journal: Makes the journal; called when there is something to add.
        count: Tokens of a text, by the counter that `origin` names.
        origin: What the files do not say.
        account: Fills in what a prefix cache would have had of each call.
    """
    report = IngestReport()
    known = set(committed(layout, "runs"))
    seeds, tasks = next_seeds(layout, ARM), _known_tasks(layout)
    repeated = repeated_in(files)
    journal: Journal | None = None
    try:
        records = (
            (path, record)
            for path in files
            for record in _records_of(
                path, report, count, origin, seeds, tasks, repeated.get(path, frozenset())
            )
        )
        for path, record in records:
            if record.run_id in known:
                report.known.append(path)
                continue
            if record.arm == ARM:
                record = account(record)
            journal = journal or new_journal()
            journal.append_run(record if record.worker else replace(record, worker=journal.name))
            known.add(record.run_id)
            report.added.append(record)
            if record.arm == ARM:
                key = (record.instance_id, record.model)
                seeds[key] = max(seeds.get(key, 0), record.seed + 1)
    finally:
        if journal is not None:
            journal.close()
    return report


def _records_of(
    path: Path,
    report: IngestReport,
    count: Count,
    origin: Origin,
    seeds: Mapping[Key, int],
    tasks: dict[str, tuple[str, str]],
    billed_elsewhere: frozenset[str],
) -> Iterator[RunRecord]:
    """Yield the runs of a file; a bad file is noted in the report."""
    try:
        exported = _exported(path) if path.suffix == ".json" else None
        if exported is not None:
            yield exported
            return
        for run in runs_in(path, count, billed_elsewhere):
            record = record_of(run, path, origin, seeds)
            _check_readable(record)
            _check_task(run, path, tasks)
            yield record
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        report.bad[path] = f"{type(error).__name__}: {error}"


def _exported(path: Path) -> RunRecord | None:
    """Return the record that this project exported into the file, if it did."""
    data = json.loads(path.read_bytes())
    if not isinstance(data, Mapping):
        return None
    return record_from_export(data) or record_from_atif_export(data)


def _check_task(run: ForeignRun, path: Path, tasks: dict[str, tuple[str, str]]) -> None:
    """Raise `ValueError` where the run's instance is known with another task text."""
    instance, digest = str(run.instance_id), task_sha256(run)
    known, where = tasks.setdefault(instance, (digest, path.name))
    if known != digest:
        raise ValueError(
            f"its instance_id is {instance!r}, and {where} has that id with another task text; "
            "ingest them into folders of their own, or give one of them another id"
        )


def _check_readable(record: RunRecord) -> None:
    """Raise `ValueError` unless the journal could give back what it is given.

    A foreign file may have anything in its fields; one such record would keep the whole folder from
    being compacted.
    """
    with warnings.catch_warnings(action="ignore"):
        data = json_of(RUN_JSON, record)
    RUN_JSON.validate_json(data)


def record_of(run: ForeignRun, path: Path, origin: Origin, seeds: Mapping[Key, int]) -> RunRecord:
    """Return the run read from `path` as a record of this folder.

    Args:
        run: What the file says, from `foreign.files`.
        path: The file, whose bytes give the run its id, and whose time stands in for one that it
            does not say.
        origin: What no such file says.
        seeds: The next seed by instance and model.
    """
    instance = str(run.instance_id)
    model = slugged(run.model)
    seed = seeds.get((instance, model), 0)
    with path.open("rb") as file:
        digest = (run.digest or hashlib.file_digest(file, "sha256").hexdigest())[:12]
    modified_at = path.stat().st_mtime
    started_at = modified_at if run.started_at is None else run.started_at
    finished_at = modified_at if run.finished_at is None else run.finished_at
    extra: dict[str, Any] = {
        "file": path.name,
        "model_name": run.model,
        "task_sha256": task_sha256(run),
    }
    if run.notes:
        extra["notes"] = list(run.notes)
    if run.reported_calls not in (None, len(run.calls)):
        extra["reported_calls"] = run.reported_calls
    return RunRecord(
        run_id=f"{slugged(instance)}-{model}-{ARM}-{digest}",
        sweep=origin.sweep,
        benchmark=origin.benchmark,
        instance_id=instance,
        repo=repo_of(instance),
        model=model,
        agent=run.agent,
        arm=ARM,
        seed=seed,
        block_id=f"{slugged(instance)}-{model}-s{seed}",
        attempt=1,
        exit_status=run.exit_status,
        failure_class=run.failure_class,
        failure=None if run.failure is None else masked(run.failure),
        patch=run.submission,
        token_counter=origin.counter_name,
        evidence="live",
        started_at=started_at,
        finished_at=finished_at,
        wall_s=run.wall_s,
        worker="",
        node=origin.node,
        versions={run.agent: run.agent_version},
        extra=extra,
        messages=tuple(map(_masked, run.trajectory.messages)),
        calls=run.calls,
    )


def _masked(message: Message) -> Message:
    """Return a message without keys and home folders; its tokens are those that were sent."""
    before, after = map(masked, message.frame)
    output = None if message.output is None else masked(message.output)
    is_framed = message.output_start is not None
    return replace(
        message,
        content=f"{before}{output}{after}" if is_framed else masked(message.content),
        output=output,
        output_start=len(before) if is_framed else None,
        reasoning=None if message.reasoning is None else masked(message.reasoning),
        command=None if message.command is None else masked(message.command),
        tool_calls=tuple(
            replace(call, arguments=masked(call.arguments)) for call in message.tool_calls
        ),
    )


def repo_of(instance_id: str) -> str:
    """Return `owner/name` of a SWE-bench instance id (`owner__name-123`), else the id."""
    owner, found, rest = instance_id.partition("__")
    name = rest.rpartition("-")[0]
    return f"{owner}/{name}" if found and name else instance_id


def next_seeds(layout: Layout, arm: str) -> dict[Key, int]:
    """Return the first free seed of each instance and model under `arm`, by the folder's tables."""
    path = layout.table_file("runs")
    if not path.exists():
        return {}
    seeds: dict[Key, int] = {}
    columns = ["instance_id", "model", "arm", "seed"]
    for row in pq.read_table(path, columns=columns).to_pylist():
        if row["arm"] == arm:
            key = (row["instance_id"], row["model"])
            seeds[key] = max(seeds.get(key, 0), row["seed"] + 1)
    return seeds


def _known_tasks(layout: Layout) -> dict[str, tuple[str, str]]:
    """Return the hash of the task text of each instance in the folder, and a file that has it."""
    path = layout.table_file("runs")
    if not path.exists():
        return {}
    rows = pq.read_table(path, columns=["instance_id", "extra"]).to_pylist()
    facts = [(row["instance_id"], json.loads(row["extra"] or "{}")) for row in rows]
    return {name: (f["task_sha256"], f["file"]) for name, f in facts if "task_sha256" in f}
