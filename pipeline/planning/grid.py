"""The runs of a sweep: paired blocks in execution order. Plain Python, no files.

A block holds all arms of one (model, agent, instance, seed, phase), so that a pair shares its node,
its server and its hour. Its runs start in an order drawn from the seed; the instances of a seed
come in an order drawn likewise, so that a sweep cut short is still balanced. With planned looks the
plan's random order is that of all seeds, and an instance comes with all of them: a look is due as
soon as its share of the runs is done.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.fields.identity import digest_of
from pipeline.records.lock import cells_of
from pipeline.records.plan import PlannedRun
from pipeline.spec.run import Cell, run_id, slugged
from pipeline.spec.sweep import SweepSpec

BlockKey = tuple[int, int, str, str]
"""Phase, seed, model and agent: with an instance, whose arms make a block."""


def planned_runs(
    spec: SweepSpec, rows: Sequence[Mapping[str, Any]], rows_sha256: Mapping[str, str]
) -> list[PlannedRun]:
    """Return every run of the grid in execution order.

    Args:
        spec: the sweep.
        rows: the instances' rows, in any order.
        rows_sha256: instance id to the digest of its row.

    Raises:
        ValueError: two runs with one id; the arms or models that share it are named.
    """
    groups = _cells_by_block(spec)
    order = _instance_orders(spec, groups, [str(row["instance_id"]) for row in rows])
    row_of = {str(row["instance_id"]): row for row in rows}
    n_seeds = spec.seed_counts(list(row_of))
    place = {name: {s: i for i, s in enumerate(spec.seeds_in_order(name))} for name in spec.arms}
    runs: list[PlannedRun] = []
    for (phase, seed, model, _), cells in groups.items():
        for instance_id in order[seed]:
            row, row_digest = row_of[instance_id], rows_sha256[instance_id]
            given = [c for c in cells if place[c[0].arm.name][seed] < n_seeds[instance_id]]
            for chunk in _shuffled_chunks(
                given, (seed, model, instance_id, phase), spec.max_block_runs
            ):
                members = [
                    PlannedRun(
                        run_id=run_id(cell, digest, row, row_digest),
                        block_id="",
                        position=0,
                        phase=phase,
                        benchmark=cell.benchmark,
                        instance_id=instance_id,
                        repo=str(row["repo"]),
                        model=model,
                        agent=cell.agent.name,
                        arm=cell.arm.name,
                        seed=seed,
                        cell_digest=digest,
                        row_sha256=row_digest,
                        evidence=cell.model.evidence,
                    )
                    for cell, digest in chunk
                ]
                block_id = _block_id(members)
                runs += (replace(run, block_id=block_id) for run in members)
    _refuse_twins(runs)
    runs = _by_rank(runs, order, by_instance=bool(spec.analysis.looks))
    return [replace(run, position=position) for position, run in enumerate(runs)]


def _cells_by_block(spec: SweepSpec) -> dict[BlockKey, list[tuple[Cell, str]]]:
    """Return the cells of each key, phase 1 before phase 2."""
    groups: dict[BlockKey, list[tuple[Cell, str]]] = {}
    for cell in cells_of(spec):
        key = (cell.arm.phase, cell.seed, cell.model.name, cell.agent.name)
        groups.setdefault(key, []).append((cell, cell.digest))
    return dict(sorted(groups.items(), key=lambda item: item[0]))


def _instance_orders(
    spec: SweepSpec, groups: Mapping[BlockKey, object], instance_ids: Sequence[str]
) -> dict[int, list[str]]:
    """Return for each seed the order in which its instances come."""
    seeds = {seed for _, seed, _, _ in groups}
    if spec.analysis.looks:
        return dict.fromkeys(seeds, spec.analysis.look_order(instance_ids))
    orders = {}
    for seed in seeds:
        orders[seed] = sorted(instance_ids)
        _rng("instances", seed).shuffle(orders[seed])
    return orders


def _shuffled_chunks(
    cells: Sequence[tuple[Cell, str]], key: tuple[int, str, str, int], size: int
) -> Iterator[list[tuple[Cell, str]]]:
    """Yield the cells in the block's own random order, at most `size` together.

    Arms that others fork from come first.
    """
    shuffled = sorted(cells, key=lambda pair: pair[0].arm.name)
    _rng("arms", *key).shuffle(shuffled)
    shuffled.sort(key=lambda pair: pair[0].forked_from is not None)
    for start in range(0, len(shuffled), size):
        yield shuffled[start : start + size]


def _by_rank(
    runs: Sequence[PlannedRun], order: Mapping[int, Sequence[str]], *, by_instance: bool
) -> list[PlannedRun]:
    """Return the runs by phase and seed, models and agents alternating within an instance.

    Args:
        runs: in any order.
        order: the instances of each seed.
        by_instance: each instance comes with all its seeds and phases before the next one.
    """
    rank = {seed: {name: i for i, name in enumerate(names)} for seed, names in order.items()}

    def key(run: PlannedRun) -> tuple[int, int, int]:
        place = rank[run.seed][run.instance_id]
        return (place, run.phase, run.seed) if by_instance else (run.phase, run.seed, place)

    return sorted(runs, key=key)


def _block_id(members: Sequence[PlannedRun]) -> str:
    first = members[0]
    content = digest_of([run.run_id for run in members], length=10)
    slug = f"{slugged(first.instance_id)}-{slugged(first.model)}-s{first.seed}-p{first.phase}"
    return f"{slug}-{content}"


def _refuse_twins(runs: Sequence[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        twin = seen.setdefault(run.run_id, run)
        if twin is not run:
            raise ValueError(
                f"{run.instance_id}: arm {run.arm!r} seed {run.seed} is planned twice; "
                "name each seed and each instance once"
            )


def _rng(*key: object) -> random.Random:
    return random.Random(int(digest_of(list(key), length=16), 16))
