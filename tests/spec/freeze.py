"""Writes tests/spec/golden: the run ids that sweeps have, and the lock data that led to them.

`python -m tests.spec.freeze` adds what is new: fields declared with `added_science`, parts (a new
arm's parameters), sweeps. Nothing that is there changes. `--replace` writes everything anew, for a
change that is meant to give runs new ids (another prompt, a raised `METHOD`); it goes with a line
under "Changes results" in CHANGELOG.md, and never with an added field.
"""

import dataclasses
import json
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline.benchmarks.rows import row_sha256
from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.fields.identity import SCIENCE, identity_of, marks_of, part_name, pins_of
from pipeline.planning.config import known, sweep_spec
from pipeline.records.lock import cells_of
from pipeline.spec.parse import plain
from pipeline.spec.run import Cell, run_id
from pipeline.spec.sweep import SweepSpec

GOLDEN = Path(__file__).parent / "golden"
FIRST = GOLDEN / "first"
"""What the first version locked, and the ids its runs have. Nothing here is ever written again."""
IDS = GOLDEN / "run_ids.json"
PINS = GOLDEN / "pins.json"
FIELDS = GOLDEN / "hashed_fields.json"
LOCKED = ("arms", "full500", "demo_smollm2")
"""Sweeps whose resolved configuration is kept: every policy, a vLLM model, the text agent."""


def run_ids(spec: SweepSpec, methods: Mapping[str, int] | None = None) -> dict[str, str]:
    """Return the run id of every cell of `spec` on the golden row, under a lock's methods."""
    (row,) = load_rows(GOLDEN / "rows.jsonl")
    cells = list(cells_of(spec))

    def key(cell: Cell) -> str:
        # Sweeps had one agent at first, whose name their keys lack.
        agent = "" if cell.agent == cells[0].agent else f"{cell.agent.name} "
        return f"{cell.model.name} {agent}{cell.arm.name} {cell.seed}"

    return {
        key(cell): run_id(cell, cell.digest_under(methods), row, row_sha256(row)) for cell in cells
    }


def spec_types(root: type) -> set[type]:
    """Return every spec dataclass reachable from `root` through field types."""
    found: set[type] = set()

    def visit(hint: object) -> None:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in found:
            found.add(hint)
            for inner in typing.get_type_hints(hint, include_extras=True).values():
                visit(inner)
        for inner in typing.get_args(hint):
            visit(inner)

    visit(root)
    return found


def hashed_fields() -> dict[str, list[str]]:
    """Return the science fields of each part that are hashed whatever they hold, by name.

    Their order in the class decides nothing: keys are sorted before hashing.
    """
    return {
        part_name(spec_type): sorted(
            name
            for name, mark in marks_of(spec_type).items()
            if mark == SCIENCE.kind and name not in pins_of(spec_type)
        )
        for spec_type in sorted(spec_types(SweepSpec) | {Cell}, key=part_name)
    }


def pins() -> dict[str, object]:
    """Return every pin, as `part.field`."""
    return {
        f"{part_name(spec_type)}.{name}": identity_of(pin, {})
        for spec_type in sorted(spec_types(SweepSpec), key=part_name)
        for name, pin in pins_of(spec_type).items()
    }


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return `old` with the keys that only `new` has, at every level."""
    both = dict(old)
    for key, value in new.items():
        nested = isinstance(value, dict) and isinstance(old.get(key), dict)
        both[key] = added(old[key], value) if nested else old.get(key, value)
    return both


def main(*, replace: bool) -> None:
    """Write the golden files: what is new, or, asked, all of them anew."""
    specs = {name: sweep_spec([f"+sweep={name}"]) for name in known("sweep")}
    today = {
        IDS: {name: run_ids(spec) for name, spec in specs.items()},
        FIELDS: hashed_fields(),
        PINS: pins(),
    }
    for path, content in today.items():
        frozen = content if replace else added(golden(path), content)
        path.write_text(json.dumps(frozen, indent=1, sort_keys=True) + "\n")
    for name in LOCKED if replace else ():
        text = yaml.safe_dump(plain(specs[name]), sort_keys=False, allow_unicode=True, width=100)
        (GOLDEN / f"{name}.yaml").write_text(text)


def golden(path: Path) -> dict[str, Any]:
    """Return a golden JSON file."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


if __name__ == "__main__":
    main(replace=sys.argv[1:] == ["--replace"])
