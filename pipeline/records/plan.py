"""The plan: one row a run, in execution order, grouped into the blocks that workers claim."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.records.lock import damaged_files_named


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run that the sweep wants. The field names are the columns of plan.parquet."""

    run_id: str
    block_id: str
    position: int
    """Place in the execution order; a block's runs stand together, in seeded random order."""
    phase: int
    """2: needs other arms' finished runs first."""
    benchmark: str
    instance_id: str
    repo: str
    model: str
    agent: str
    arm: str
    seed: int
    cell_digest: str
    row_sha256: str
    evidence: str
    extension: int = 0
    """0: planned at first; n: added by the n-th extension of the sweep."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """All arms of one (model, agent, instance, seed, phase): what a worker claims."""

    block_id: str
    phase: int
    model: str
    instance_id: str
    seed: int
    runs: tuple[PlannedRun, ...]


_COLUMN_TYPES = {int: pa.int32(), str: pa.string()}
PLAN_SCHEMA = pa.schema(
    [pa.field(f.name, _COLUMN_TYPES[f.type], nullable=False) for f in fields(PlannedRun)]  # type: ignore[index]
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
