"""Everything that is computed from one results folder, before anything is written.

A `Study` is data: groups, contrasts, noise, and what the gate found. `publish` turns it into
tables, figures and the report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pipeline.analysis.contrasts import Contrast, contrasts_of
from pipeline.analysis.gate import Gate, InvalidSweepError, checked, refusal
from pipeline.analysis.outcomes import ArmOutcomes, Group, groups_of
from pipeline.analysis.power import PowerRow, power_table
from pipeline.analysis.replication import SeedNoise, pass_at_k, pass_hat_k, seed_noise
from pipeline.analysis.tables import open_tables
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, read_lock
from pipeline.spec.analysis import AnalysisPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStudy:
    """One group with everything found in it."""

    group: Group
    reference: str
    contrasts: tuple[Contrast, ...]
    noise: Mapping[str, SeedNoise]
    """Arm against itself between seeds."""
    passes: Mapping[str, Sequence[tuple[int, float, float]]]
    """Arm to (k, pass@k, pass^k)."""

    @property
    def main_arm(self) -> str | None:
        """The arm shown in figures of one pair; None with a single arm."""
        arms = [c.arm for c in self.contrasts]
        planned = [c.arm for c in self.contrasts if c.is_planned] or arms
        return "plan_prune" if "plan_prune" in planned else (planned[0] if planned else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What one results folder says."""

    results: Path
    plan: AnalysisPlan
    lock: Lock | None
    gate: Gate
    groups: tuple[GroupStudy, ...]
    power: tuple[PowerRow, ...]

    @property
    def evidence(self) -> str:
        """The evidence label of everything in it."""
        labels = {e for g in self.groups for e in g.group.evidence.split("+")}
        return "+".join(sorted(labels)) or "unknown"

    @property
    def is_marked(self) -> bool:
        """True where the gate failed and results were asked for all the same."""
        return not self.gate.passes


def study_of(
    results: Path,
    connection: duckdb.DuckDBPyConnection,
    *,
    reference: str | None = None,
    allow_invalid: bool = False,
) -> Study:
    """Return what the open tables of `results` say.

    Args:
        results: the results folder, for its lock.
        connection: from `open_tables`.
        reference: arm to compare with instead of the plan's; all is exploratory then.
        allow_invalid: analyse a sweep that fails the gate; everything is marked.

    Raises:
        InvalidSweepError: the gate refused the sweep, or there is nothing to analyse.
        ValueError: the reference is not among the arms.
    """
    layout = Layout(results)
    lock = read_lock(layout.lock) if layout.lock.exists() else None
    plan = lock.spec.analysis if lock else AnalysisPlan()
    gate = checked(connection, has_lock=lock is not None)
    nothing = any(p.code == "no_runs" for p in gate.problems)
    if nothing or not (gate.passes or allow_invalid):
        raise InvalidSweepError(refusal(gate))
    groups = groups_of(connection, exclusions=plan.exclusions)
    return Study(
        results=results,
        plan=plan,
        lock=lock,
        gate=gate,
        groups=tuple(_group_study(g, plan, reference=reference or plan.reference) for g in groups),
        power=tuple(_power(groups, plan)),
    )


def opened_study(
    results: Path, *, reference: str | None = None, allow_invalid: bool = False
) -> tuple[duckdb.DuckDBPyConnection, Study]:
    """Return the open tables of `results` and what they say; see `study_of`."""
    connection = open_tables(results)
    study = study_of(results, connection, reference=reference, allow_invalid=allow_invalid)
    return connection, study


def _group_study(group: Group, plan: AnalysisPlan, *, reference: str) -> GroupStudy:
    if len(group.arms) == 1:
        # One arm has nothing to be compared with; it is described.
        reference = next(iter(group.arms))
    return GroupStudy(
        group=group,
        reference=reference,
        contrasts=tuple(contrasts_of(group, plan, reference=reference)),
        noise={name: _noise(arm) for name, arm in group.arms.items()},
        passes={name: _passes(arm) for name, arm in group.arms.items()},
    )


def _noise(arm: ArmOutcomes) -> SeedNoise:
    return seed_noise(arm.resolved, arm.metrics["input_tokens"], arm.metrics["n_steps"])


def _passes(arm: ArmOutcomes) -> list[tuple[int, float, float]]:
    """Return pass@k and pass^k, each the mean over instances with all seeds graded."""
    graded = arm.graded
    if not graded.any():
        return []
    runs = (~np.isnan(arm.resolved[graded])).sum(axis=1)
    solved = np.nansum(arm.resolved[graded], axis=1).astype(int)
    pairs = list(zip(runs.tolist(), solved.tolist(), strict=True))
    return [
        (
            k,
            float(np.mean([pass_at_k(n, s, k) for n, s in pairs])),
            float(np.mean([pass_hat_k(n, s, k) for n, s in pairs])),
        )
        for k in range(1, int(runs.min()) + 1)
    ]


def _power(groups: Sequence[Group], plan: AnalysisPlan) -> list[PowerRow]:
    sizes = sorted({len(g.instance_ids) for g in groups} | {25, 100, 500})
    return power_table(sizes, discordances=(0.05, 0.10, 0.20), margin=plan.margin)
