"""A run: one cell on one instance, and the id that its science gives it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.fields.identity import METHOD_VERSION, Science, added_science, digest_of, identity_of
from pipeline.spec.agent import AgentSpec
from pipeline.spec.arm import ArmSpec
from pipeline.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Benchmark x model x agent x arm x seed."""

    benchmark: Science[str]
    model: Science[ModelSpec]
    agent: Science[AgentSpec]
    arm: Science[ArmSpec]
    seed: Science[int]
    forked_from: Science[str | None] = added_science(None)
    """The arm whose run of this seed the runs of this one begin with (docs/planning.md)."""

    @property
    def digest(self) -> str:
        """The cell's digest under the methods of this version of the code."""
        return self.digest_under(None)

    def digest_under(self, methods: Mapping[str, int] | None) -> str:
        """Return the digest of the cell's identity and of the arm's name: A/A pairs are two cells.

        Args:
            methods: method versions that a lock recorded; None: those of this version of the code.
        """
        return digest_of([self.arm.name, identity_of(self, methods)], length=16)


def run_id(cell: Cell, cell_digest: str, row: Mapping[str, Any], row_digest: str) -> str:
    """Return the id of `cell` on the instance of `row`.

    A readable slug, then a hash of the cell's science, the instance's row and the method version.
    Digests are passed in because a plan of 18,000 runs computes each of them once.
    """
    slug = "-".join(
        slugged(part)
        for part in (str(row["instance_id"]), cell.model.name, cell.arm.name, f"s{cell.seed}")
    )
    return f"{slug}-{digest_of([METHOD_VERSION, cell_digest, row_digest])}"


def slugged(text: str) -> str:
    """Return `text` with only letters, digits, dots and underscores, safe in any file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", text).strip("_.")[:64]


def request_seed(seed: int, instance_id: str, kind: str, step_index: int) -> int:
    """Return the seed of one request: never of the arm, so that pairs start alike.

    See docs/methods.md, Protocol.
    """
    return int(digest_of([seed, instance_id, kind, step_index], length=8), 16) & 0x7FFFFFFF
