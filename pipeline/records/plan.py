"""The plan: one row a run, in execution order, grouped into the blocks that workers claim."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.fields.kept import Kept, kept_fields
from pipeline.records.lock import damaged_files_named


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run that the sweep wants: a row of plan.parquet."""

    run_id: Annotated[str, Kept("The run: readable slug and a hash of its science")]
    block_id: Annotated[str, Kept("The block: all arms of one instance, claimed together")]
    position: Annotated[int, Kept("Place in the order of execution, from 0")]
    phase: Annotated[int, Kept("1, or 2 for an arm that needs another arm's finished runs")]
    benchmark: Annotated[str, Kept("Name of the benchmark")]
    instance_id: Annotated[str, Kept("The benchmark task")]
    repo: Annotated[str, Kept("Repository the task is about")]
    model: Annotated[str, Kept("Name of the model's config")]
    agent: Annotated[str, Kept("Name of the agent's config")]
    arm: Annotated[str, Kept("Name of the arm")]
    seed: Annotated[int, Kept("Replicate; a pair of arms shares it")]
    cell_digest: Annotated[str, Kept("The cell's science, hashed; the lock has it in full")]
    row_sha256: Annotated[str, Kept("Of the instance's row as canonical JSON")]
    evidence: Annotated[str, Kept("live, sim or synthetic")]
    extension: Annotated[int, Kept("0, or the relaunch that added the run")] = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """All arms of one (model, agent, instance, seed, phase): what a worker claims."""

    block_id: str
    phase: int
    model: str
    instance_id: str
    seed: int
    runs: tuple[PlannedRun, ...]


_COLUMN_TYPES: dict[type, pa.DataType] = {int: pa.int32(), str: pa.string()}
PLAN_SCHEMA = pa.schema(
    [
        pa.field(name, _COLUMN_TYPES[held], nullable=False)
        for name, (held, _) in kept_fields(PlannedRun).items()
    ]
)


def plan_bytes(runs: Iterable[PlannedRun]) -> bytes:
    """Return plan.parquet's content."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([asdict(run) for run in runs], schema=PLAN_SCHEMA)
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def read_plan(path: Path) -> list[PlannedRun]:
    """Return the planned runs in execution order.

    Raises:
        LockError: the plan is missing or damaged.
    """
    with damaged_files_named(path):
        rows = pq.read_table(path, schema=PLAN_SCHEMA).to_pylist()
        return sorted((PlannedRun(**row) for row in rows), key=lambda run: run.position)


def blocks_of(runs: Sequence[PlannedRun]) -> list[Block]:
    """Return the blocks of a plan, in execution order."""
    blocks = []
    for block_id, members in groupby(runs, key=lambda run: run.block_id):
        together = tuple(members)
        first = together[0]
        blocks.append(
            Block(
                block_id=block_id,
                phase=first.phase,
                model=first.model,
                instance_id=first.instance_id,
                seed=first.seed,
                runs=together,
            )
        )
    return blocks
