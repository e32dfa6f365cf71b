"""Recorded runs, wherever they are kept: trajectory files, tables of results, a labelled corpus.

A run comes out with every message as the model first saw it: what an elision cut before the first
call was never in the backbone's context, so it can be neither labelled nor scored.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.linehead.corpus import corpus_records, is_corpus
from pipeline.linehead.recorded_run import RecordedRun
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.ingested import Origin, record_of
from pipeline.records.json_columns import edit_from
from pipeline.records.layout import Layout
from pipeline.records.patch import patch_in
from pipeline.records.rebuild import RunTables, all_run_tables, message_from, tool_lists
from pipeline.views.trajectory import Edit, Message, Part, Trajectory, merged, shown_content


def recorded_runs(paths: Iterable[Path]) -> Iterator[RecordedRun]:
    """Yield the runs of trajectory files, folders of them, and results folders, one at a time.

    Raises:
        ValueError: a path holds nothing of the kind, or a file is no trajectory.
    """
    for path in paths:
        layout = Layout(path)
        if layout.table_file("runs").exists():
            yield from _runs_of_tables(layout)
            continue
        if is_corpus(path):
            yield from (record.run for record in corpus_records(path))
            continue
        files = list(trajectory_files(path)) if path.exists() else []
        if not files:
            raise ValueError(
                f"{path} holds no trajectory and no tables/runs; give trajectory files, a folder "
                "of them, or a results folder"
            )
        for file in files:
            yield from _runs_of_file(file)


def _runs_of_file(path: Path) -> Iterator[RecordedRun]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    origin = Origin(sweep="", benchmark="", counter_name="", node="")
    try:
        for run in runs_in(path, lambda _: 0):
            record = record_of(run, path, origin, {})
            yield RecordedRun(
                run_id=record.run_id,
                instance_id=record.instance_id,
                model=run.model,
                trajectory=run.trajectory,
                patch=record.patch or "",
                tools=None,
                source=path.name,
                source_sha256=digest,
            )
    except ValueError as error:
        raise ValueError(f"{path} is no trajectory: {error}") from error


def _runs_of_tables(layout: Layout) -> Iterator[RecordedRun]:
    tools = tool_lists(layout)
    digest = hashlib.sha256(layout.table_file("runs").read_bytes()).hexdigest()
    for tables in all_run_tables(layout):
        run = tables.run
        used = next((c["tools_sha256"] for c in tables.calls if c["tools_sha256"]), None)
        yield RecordedRun(
            run_id=run["run_id"],
            instance_id=run["instance_id"],
            model=run["model"],
            trajectory=shown_first(tables),
            patch=patch_in(run) or "",
            tools=None if used is None else tools.get(used),
            source=layout.root.name,
            source_sha256=digest,
        )


def shown_first(tables: RunTables) -> Trajectory:
    """Return a run's trajectory with each content as the first step call showed it."""
    messages: list[Message] = []
    standing: Mapping[tuple[int, Part], Edit] = {}
    raw = [message_from(row) for row in tables.messages]
    for call in tables.calls:
        standing = merged(standing, map(edit_from, _edits_of(call)))
        if call["kind"] == "step":
            messages += [_as_shown(m, standing) for m in raw[len(messages) : call["message_count"]]]
    trajectory = Trajectory()
    trajectory.append(messages + raw[len(messages) :])
    return trajectory


def _edits_of(call: Mapping[str, Any]) -> list[Any]:
    return list(json.loads(call["view_edits"] or "{}").get("edits", ()))


def _as_shown(message: Message, edits: Mapping[tuple[int, Part], Edit]) -> Message:
    content = shown_content(message, edits)
    return message if content == message.content else replace(message, content=content)
