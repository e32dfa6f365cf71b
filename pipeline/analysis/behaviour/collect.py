"""One pass over the messages of a sweep: what every run did, and regret by run.

Messages are by far the largest table, so they are read one file at a time and never all at once.
What comes out is one row a run and one row a re-fetch.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.analysis.arrays import BoolArray, FloatArray, IntArray
from pipeline.analysis.behaviour.foreign import names_foreign_commit
from pipeline.analysis.behaviour.lines import DistinctLines, distinct_lines
from pipeline.analysis.behaviour.recalls import Recalls, recalls_asked, recalls_by_run
from pipeline.analysis.behaviour.refetch import (
    NEVER,
    Outputs,
    Refetches,
    eligible_reads,
    refetches_of,
)
from pipeline.analysis.behaviour.regret import Hazard, hazard_of, stacked
from pipeline.records.columns import MESSAGES
from pipeline.records.json_columns import tool_calls_from
from pipeline.records.lock import REBUILD, damaged_files_named
from pipeline.records.schema import schema_of
from pipeline.shell.facts import facts_of
from pipeline.shell.kinds import Kind
from pipeline.shell.leaks import fetches_from_network, looks_at_other_commits, named_commit
from pipeline.spec.analysis import RefetchSource
from pipeline.views.prune_tool import prune_answer

MAX_BATCH_MESSAGES = 240_000
"""Messages held at once, half of them outputs."""
MAX_BATCH_BYTES = 48 << 20
"""Text held at once; its lines, numbered and compared, take up to twenty times as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """What the runs of a sweep did."""

    run_ids: Sequence[str]
    columns: Mapping[str, FloatArray]
    """Column to one value a run, in the order of `run_ids`."""
    hazard: Hazard
    """One row a run, in the order of `run_ids`."""
    refetches: pa.Table
    """One row a re-fetch."""


_SETUP = """
CREATE TEMP TABLE IF NOT EXISTS call_steps AS
  SELECT run_id, call_index, step_index, kind FROM calls;
CREATE TEMP TABLE IF NOT EXISTS step_calls AS
  SELECT run_id, step_index, min(call_index) AS call_index
  FROM call_steps WHERE kind = 'step' GROUP BY ALL;
"""

_OUTPUTS = """
SELECT d.run_id, m.message_index, m.step_index AS turn, coalesce(s.call_index, 0) AS call,
  m.pruned_at_call, p.step_index AS pruned_turn, m.replaced_by, m.command,
  coalesce(m.output, substring(m.content, m.output_start + 1, m.output_length), m.content)
    AS output,
  d.n_steps
FROM batch m
JOIN done d ON d.run_id = m.run_id
LEFT JOIN step_calls s ON s.run_id = m.run_id AND s.step_index = m.step_index
LEFT JOIN call_steps p ON p.run_id = m.run_id AND p.call_index = m.pruned_at_call
WHERE m.tool IS NOT NULL AND m.tool NOT IN ('planctl', 'prune_observations', 'recall')
ORDER BY d.run_id, m.message_index
"""


def collect(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[Path],
    *,
    refetch_source: RefetchSource = "one",
) -> Behaviour:
    """Return what every finished run did, by one pass over its outputs.

    Args:
        connection: from `open_tables`.
        files: the messages table's; a run's messages lie in one of them.
        refetch_source: the analysis plan's.
    """
    connection.execute(_SETUP)
    run_ids: list[str] = []
    columns: dict[str, list[FloatArray]] = defaultdict(list)
    hazards: list[Hazard] = []
    tables: list[pa.Table] = []
    choices, recalls = _choices(connection), recalls_asked(connection)
    for rows in _batches(connection, files):
        batch = _Batch(rows, choices, recalls, refetch_source)
        run_ids += batch.run_ids
        for name, values in batch.run_columns().items():
            columns[name].append(values)
        hazards.append(batch.hazard())
        tables.append(batch.refetch_table())
    return Behaviour(
        run_ids=run_ids,
        columns={name: np.concatenate(parts) for name, parts in columns.items()},
        hazard=stacked(hazards),
        refetches=pa.concat_tables(tables) if tables else pa.table({}),
    )


_CHOICES = """
SELECT c.run_id, c.step_index, c.reply, c.reply_tool_calls FROM calls c JOIN done d USING (run_id)
WHERE c.kind = 'cleanup' AND d.n_pruned = 0
ORDER BY c.run_id, c.call_index
"""


def _choices(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[int, int]]:
    """Return what runs that pruned nothing chose to prune: by run, output number to turn.

    Outputs are numbered from 1 as the cleanup lists them. Answers that cannot be read chose
    nothing.
    """
    chosen: dict[str, dict[int, int]] = defaultdict(dict)
    for run_id, step_index, *answer in connection.execute(_CHOICES).fetchall():
        for number in chosen_numbers(*answer):
            chosen[run_id].setdefault(number, step_index)
    return chosen


def chosen_numbers(reply: str | None, reply_tool_calls: str | None) -> tuple[int, ...]:
    """Return the output numbers that a cleanup's answer names, as the policy itself reads them."""
    return prune_answer(reply or "", tool_calls_from(reply_tool_calls)).ids


def _batches(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the outputs of whole runs, a bounded amount of text at a time."""
    for messages in _whole_runs(files):
        connection.register("batch", messages)
        rows = connection.sql(_OUTPUTS).to_arrow_table()
        connection.unregister("batch")
        if rows.num_rows:
            yield rows.combine_chunks()


_COLUMNS = (
    *("run_id", "message_index", "step_index", "tool", "command", "content", "output"),
    *("output_start", "output_length", "pruned_at_call", "replaced_by"),
)


def _whole_runs(files: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the messages of whole runs, which follow one another in the files."""
    pieces: list[pa.RecordBatch] = []
    for path in files:
        for piece in _pieces_of(path):
            pieces.append(piece)
            n_bytes = sum(each.nbytes for each in pieces)
            if n_bytes < MAX_BATCH_BYTES and sum(map(len, pieces)) < MAX_BATCH_MESSAGES:
                continue
            table = pa.Table.from_batches(pieces)
            # The last run may go on in the next piece.
            last = pc.equal(table["run_id"], table["run_id"][-1])
            end = pc.index(last, pa.scalar(value=True)).as_py()
            if end:
                yield table.slice(0, end)
                pieces = table.slice(end).to_batches()
    if pieces:
        yield pa.Table.from_batches(pieces)


def _pieces_of(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file, few at a time; columns that it lacks are empty."""
    schema = pa.schema([field for field in schema_of(MESSAGES) if field.name in _COLUMNS])
    with damaged_files_named(path, REBUILD), pq.ParquetFile(path) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        for piece in file.iter_batches(_messages_a_piece(file.metadata), columns=names):
            arrays = [
                piece[field.name].cast(field.type)
                if field.name in names
                else pa.nulls(len(piece), field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _messages_a_piece(metadata: pq.FileMetaData) -> int:
    """Return how many messages of a file to read at once: a few megabytes of usual ones."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    n_bytes = sum(group.total_byte_size for group in groups)
    usual = max(n_bytes // max(metadata.num_rows, 1), 1)
    return int(min(max(_PIECE_BYTES // usual, 1), 512))


_PIECE_BYTES = 8 << 20


class _Batch:
    """The outputs of some runs, worked out once."""

    def __init__(
        self,
        rows: pa.Table,
        choices: Mapping[str, Mapping[int, int]],
        recalls: Recalls,
        refetch_source: RefetchSource,
    ) -> None:
        self._rows = rows
        self._choices, self._recalls = choices, recalls
        runs = rows["run_id"].combine_chunks().dictionary_encode()
        self.run_ids: list[str] = runs.dictionary.to_pylist()
        run = _ints(runs.indices)
        commands = rows["command"].combine_chunks().dictionary_encode()
        self._codes = _ints(commands.indices.fill_null(len(commands.dictionary)))
        self._commands = [str(c) for c in commands.dictionary.to_pylist()] + [""]
        facts = [facts_of(command) for command in self._commands]
        self._kinds = np.array([f.kind.value for f in facts])[self._codes]
        numbered = np.array([f.numbered for f in facts])[self._codes]
        self._lines, left_share = _lines_and_left_share(rows, numbered)
        self.outputs = Outputs(
            run=run,
            message_index=_ints(rows["message_index"]),
            turn=_ints(rows["turn"]),
            call=_ints(rows["call"]),
            pruned_at_call=_ints(rows["pruned_at_call"].fill_null(NEVER)),
            left_share=left_share,
            is_read=np.array([f.shows_text for f in facts])[self._codes],
            is_write=self._kinds == Kind.WRITE.value,
            command=rows["command"].combine_chunks(),
        )
        self.refetches: Refetches = refetches_of(
            self.outputs, self._lines, refetch_source=refetch_source
        )
        self.eligible: BoolArray = eligible_reads(self.outputs, self._lines)

    def run_columns(self) -> dict[str, FloatArray]:
        """Return counts by run."""
        n = len(self.run_ids)
        found = self.refetches
        reader = self.outputs.run[found.read]

        def counted(run: IntArray) -> FloatArray:
            return np.bincount(run, minlength=n).astype(np.float64)

        share = found.visible_share
        columns = {
            "n_reads": counted(self.outputs.run[self.eligible]),
            "n_refetches": counted(reader),
            "n_refetches_pruned": counted(reader[share <= 0]),
            "n_refetches_partly": counted(reader[(share > 0) & (share < 1)]),
            "n_refetches_visible": counted(reader[share >= 1]),
            "n_refetches_verifying": counted(reader[found.verifies]),
            "n_refetch_steps": counted(_steps_with(reader, self.outputs.turn[found.read])),
            "n_recalls": recalls_by_run(
                self._recalls,
                self.run_ids,
                first=np.searchsorted(self.outputs.run, np.arange(n + 1)),
                pruned_at_call=self.outputs.pruned_at_call,
            ),
        }
        for kind in Kind:
            columns[f"n_{kind.value}"] = counted(self.outputs.run[self._kinds == kind.value])
        for name, test in _LEAKS.items():
            flags = np.array([test(c) for c in self._commands])[self._codes]
            columns[name] = counted(self.outputs.run[flags])
        foreign = names_foreign_commit(
            self.outputs.run,
            [self._commands[code] for code in self._codes],
            self._rows["output"].combine_chunks(),
            np.array([looks_at_other_commits(c) for c in self._commands])[self._codes],
        )
        columns["n_foreign_commits"] = counted(self.outputs.run[foreign])
        return columns

    def hazard(self) -> Hazard:
        """Return the hazard of every run."""
        return hazard_of(
            self.outputs,
            self.refetches,
            n_runs=len(self.run_ids),
            eligible=self.eligible,
            last_turn=_ints(self._rows["n_steps"].fill_null(0)),
            pruned_turn=self._turns_without_output(),
        )

    def _turns_without_output(self) -> IntArray:
        """Return the turn from which each output was pruned, or chosen where nothing was."""
        turns = _ints(self._rows["pruned_turn"].fill_null(NEVER))
        run = self.outputs.run
        first = np.searchsorted(run, np.arange(len(self.run_ids)))
        counts = np.bincount(run, minlength=len(self.run_ids))
        for place, run_id in enumerate(self.run_ids):
            for number, turn in self._choices.get(run_id, {}).items():
                if 1 <= number <= counts[place]:
                    turns[first[place] + number - 1] = turn
        return turns

    def refetch_table(self) -> pa.Table:
        """Return one row a re-fetch."""
        found, outputs = self.refetches, self.outputs
        names = pa.array(self.run_ids)
        return pa.table(
            {
                "run_id": names.take(pa.array(outputs.run[found.read])),
                "message_index": outputs.message_index[found.read],
                "source_message_index": outputs.message_index[found.source],
                "turn": outputs.turn[found.read],
                "distance_turns": found.distance_turns,
                "share": found.share,
                "visible_share": found.visible_share,
                "verifies": found.verifies,
                "command": outputs.command.take(pa.array(found.read)),
            }
        )


_LEAKS: Mapping[str, Any] = {
    "n_network": fetches_from_network,
    "n_other_commits": looks_at_other_commits,
    "n_named_commits": lambda command: named_commit(command) is not None,
}
"""Column to the test of a command. Named commits are listed apart: many are of the task's past."""


def _steps_with(run: IntArray, turn: IntArray) -> IntArray:
    """Return the run of every step that is named at least once."""
    steps: IntArray = np.unique(np.stack([run, turn]), axis=1)[0]
    return steps


def _lines_and_left_share(rows: pa.Table, numbered: BoolArray) -> tuple[DistinctLines, FloatArray]:
    """Return the outputs' lines, and of each the share that its replacement still shows."""
    n = rows.num_rows
    contents = rows["output"].combine_chunks()
    was_pruned = rows["pruned_at_call"].is_valid().combine_chunks()
    pruned = np.flatnonzero(was_pruned.to_numpy(zero_copy_only=False))
    replaced = rows["replaced_by"].combine_chunks().take(pa.array(pruned))
    lines = distinct_lines(
        pa.concat_arrays([contents, replaced]), np.concatenate([numbered, numbered[pruned]])
    )
    own = lines.output < n
    of_outputs = DistinctLines(
        output=lines.output[own], line=lines.line[own], counts=lines.counts[:n]
    )
    if not len(pruned):
        return of_outputs, np.zeros(n)
    n_lines = int(lines.line.max(initial=0)) + 1
    keys = of_outputs.output * n_lines + of_outputs.line
    still = pruned[lines.output[~own] - n] * n_lines + lines.line[~own]
    shown = np.isin(still, keys, assume_unique=True)
    left = np.bincount(still[shown] // n_lines, minlength=n).astype(np.float64)
    return of_outputs, left / np.maximum(of_outputs.counts, 1)


def _ints(values: Any) -> IntArray:
    """Return a column without nulls as 64-bit integers."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers: IntArray = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
