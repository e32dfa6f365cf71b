"""Did each arm's runs get their treatment, and did budgets come out as asked?

See docs/methods.md, Regret and dose.

Workers run every arm's policy again over its finished runs and leave the verdict, the edits by
reason and the budget in `runs.extra`. This module only counts them. Runs without a verdict
(ingested ones) are unknown, not untreated.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pipeline.analysis.problem import Problem

VERDICTS = ("treated", "declined", "not_triggered", "untreated", "unexpected", "unknown")
"""Edits were made; the model was asked and chose none; no occasion; an occasion and no edit; edits
that the arm would not make; nobody looked."""

_ACHIEVED: Mapping[str, str] = {
    "mean_prompt": "input_tokens::DOUBLE / nullif(coalesce(n_counted_calls, n_calls), 0)",
    "peak": "peak_context_tokens::DOUBLE",
    "removed_tokens": "pruned_tokens::DOUBLE",
    "total_input": "input_tokens::DOUBLE",
}
"""What a budget is measured by, to the run's own value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """An arm's requested and achieved budget, in tokens: means over its runs."""

    measure: str
    parameter: str
    n_runs: int
    requested: float
    pilot: float
    """What the chosen parameter values came to on the pilot's instances."""
    achieved: float
    n_capped_donors: int
    """Runs whose budget is a lower bound, since a donor ended at a limit."""

    @property
    def ratio(self) -> float:
        """Achieved over requested."""
        return self.achieved / self.requested if self.requested > 0 else float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTreatment:
    """What became of one arm's treatment in its finished runs."""

    model: str
    agent: str
    arm: str
    verdicts: Mapping[str, int]
    """Every one of `VERDICTS` to its runs."""
    edits: Mapping[str, int]
    """Reason to edits over all runs, the shared elisions aside."""
    budgets: tuple[Budget, ...]
    """Empty for an arm without a budget."""
    n_judged: int = 0
    """Outputs that the arm's line pruner was asked about."""
    n_pruner_errors: int = 0
    """Of these, shown whole because it failed."""

    @property
    def n_runs(self) -> int:
        """Finished runs of the arm."""
        return sum(self.verdicts.values())

    @property
    def never_treated(self) -> int:
        """Runs of which it is known that no edit was made, for whatever reason."""
        return sum(self.verdicts[v] for v in ("declined", "not_triggered", "untreated"))

    @property
    def is_untreated(self) -> bool:
        """True where there were occasions and none of them led to anything."""
        v = self.verdicts
        return v["untreated"] > 0 and not (v["treated"] or v["declined"] or v["unexpected"])

    @property
    def edits_sentence(self) -> str:
        """The edits by reason, the most frequent first."""
        ordered = sorted(self.edits.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{reason} {n}" for reason, n in ordered) or "none"


def treatments_of(connection: duckdb.DuckDBPyConnection) -> list[ArmTreatment]:
    """Return one row for each model, agent and arm with finished runs, in order."""
    values = ", ".join(_ACHIEVED.values())
    query = (
        f"SELECT model, agent, arm, extra, {values} FROM done ORDER BY model, agent, arm, run_id"
    )
    found: dict[tuple[str, str, str], list[_Seen]] = {}
    for model, agent, arm, extra, *achieved in connection.execute(query).fetchall():
        by_measure = dict(zip(_ACHIEVED, achieved, strict=True))
        found.setdefault((model, agent, arm), []).append(_Seen(_facts(extra), by_measure))
    return [_counted(*whose, runs) for whose, runs in found.items()]


@dataclass(frozen=True, slots=True)
class _Seen:
    facts: Mapping[str, Any]
    achieved: Mapping[str, float | None]


def _facts(extra: str | None) -> Mapping[str, Any]:
    """Return what a run's writer left; anything that is no object says nothing."""
    try:
        facts = json.loads(extra) if extra else {}
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _counted(model: str, agent: str, arm: str, runs: Sequence[_Seen]) -> ArmTreatment:
    verdicts, edits = dict.fromkeys(VERDICTS, 0), Counter[str]()
    judged = failed = 0
    for run in runs:
        treatment = run.facts.get("treatment") or {}
        verdict = treatment.get("verdict")
        verdicts[verdict if verdict in verdicts else "unknown"] += 1
        edits.update(treatment.get("edits") or {})
        judged += treatment.get("n_judged") or 0
        failed += treatment.get("n_pruner_errors") or 0
    return ArmTreatment(
        model=model,
        agent=agent,
        arm=arm,
        verdicts=verdicts,
        edits=dict(edits),
        budgets=_budgets(runs),
        n_judged=judged,
        n_pruner_errors=failed,
    )


def _budgets(runs: Sequence[_Seen]) -> tuple[Budget, ...]:
    """Return one budget for each measure and parameter; an arm has one unless it was changed."""
    groups: dict[tuple[str, str], list[tuple[Mapping[str, Any], float]]] = {}
    for run in runs:
        budget = run.facts.get("budget")
        if not budget:
            continue
        measure = str(budget.get("match_on", "mean_prompt"))
        value = run.achieved.get(measure)
        key = (measure, str(budget["parameter"]))
        groups.setdefault(key, []).append((budget, float("nan") if value is None else value))
    return tuple(
        Budget(
            measure=measure,
            parameter=parameter,
            n_runs=len(met),
            requested=_mean([b["requested_tokens"] for b, _ in met]),
            pilot=_mean([b["pilot_tokens"] for b, _ in met]),
            achieved=_mean([value for _, value in met]),
            n_capped_donors=sum(bool(b.get("capped_donor_seeds")) for b, _ in met),
        )
        for (measure, parameter), met in groups.items()
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def mistreated(treatments: Sequence[ArmTreatment], baseline_arms: Sequence[str]) -> list[Problem]:
    """Return which arms did not do what they are named for: untreated runs, a pruned baseline.

    One untreated run is a note; an arm of which none was treated, and a baseline with edits, are
    not what they are called, and refuse the sweep.
    """
    found = []
    for t in treatments:
        untreated, unexpected = t.verdicts["untreated"], t.verdicts["unexpected"]
        where = f"arm {t.arm} ({t.model}, {t.agent})"
        if untreated:
            found.append(
                Problem(
                    code="untreated_arm" if t.is_untreated else "untreated_runs",
                    model=t.model,
                    agent=t.agent,
                    arms=(t.arm,),
                    sentence=f"{where}: in {untreated} of {t.n_runs} runs its trigger fired and no "
                    "edit was made",
                    remedy="see tables/treatment.csv; runs of another version, or a broken policy: "
                    "run the arm again in a new folder",
                    blocks=t.is_untreated,
                )
            )
        if t.n_pruner_errors:
            found.append(
                Problem(
                    code="pruner_errors",
                    model=t.model,
                    agent=t.agent,
                    arms=(t.arm,),
                    sentence=f"{where}: its line pruner failed on {t.n_pruner_errors} of "
                    f"{t.n_judged} outputs, which were shown whole",
                    remedy="see the errors in calls.pruner_answer (of a head in the server: "
                    "calls.server_answer); runs.n_pruner_errors says which "
                    "runs have them",
                    # A few whole outputs dilute an arm; a pruner mostly gone is no treatment.
                    blocks=2 * t.n_pruner_errors > t.n_judged,
                )
            )
        if t.arm in baseline_arms and t.edits:
            found.append(
                Problem(
                    code="treated_baseline",
                    model=t.model,
                    agent=t.agent,
                    arms=(t.arm,),
                    sentence=f"{where} is to show everything, and edits were made "
                    f"({t.edits_sentence})",
                    remedy="it is no baseline: run it again in a new folder",
                )
            )
        elif unexpected:
            found.append(
                Problem(
                    code="unexpected_edits",
                    model=t.model,
                    agent=t.agent,
                    arms=(t.arm,),
                    sentence=f"{where}: {unexpected} of {t.n_runs} runs were shown edits that the "
                    "arm's policy, run again, does not make",
                    remedy="see tables/treatment.csv; was the policy changed during the sweep?",
                    blocks=unexpected == t.n_runs,
                )
            )
    return found
