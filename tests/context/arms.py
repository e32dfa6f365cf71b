"""All arms as the configuration has them."""

from dataclasses import replace
from pathlib import Path

import yaml

from pipeline.spec.arm import ArmSpec
from pipeline.spec.deletion_grid import deletion_grid
from pipeline.spec.parse import parsed

CONF = Path(__file__).resolve().parents[2] / "conf"


COLD = {
    **{"keep_last_turns": 1, "trim_from_share": 0.0, "clear_from_share": 0.02},
    **{"trim_above_chars": 60, "head_chars": 20, "tail_chars": 20, "min_clear_chars": 0},
}
"""Shares and sizes at which `cold_prune` trims and clears short runs."""


def arm(name: str, **policy: object) -> ArmSpec:
    data = yaml.safe_load((CONF / "arm" / f"{name}.yaml").read_text())
    return parsed(ArmSpec, {**data, "policy": {**data["policy"], **policy}})


def arm_names() -> list[str]:
    return sorted(path.stem for path in (CONF / "arm").glob("*.yaml"))


def all_arms() -> dict[str, ArmSpec]:
    """Every configured arm, some made to fire early, and the 42 deletions."""
    arms = {name: arm(name) for name in arm_names()}
    examples = {
        f"{name}_early": replace(a, policy=replace(a.policy, **a.policy.for_example))
        for name, a in arms.items()
        if a.policy.for_example
    }
    early = [
        arm("context_edit", trigger_tokens=60, clear_tool_inputs=True),
        arm("llm_summary", summarise_turns=3, keep_last_turns=2),
        arm("hybrid", summarise_turns=4, keep_last_turns=2, mask_keep_last_turns=2, polling=1),
        arm("observation_mask", keep_last_turns=2, polling=2),
        arm("agent_diet", min_tokens=10, min_saved_tokens=5),
        arm("every_k", every_k=3),
        arm("offload", min_tokens=50),
        arm("reuse_prune", unused_turns=3),
        arm("plan_prune_cached", cached_price=0.9, output_price=0.1, first_output_tokens=1.0),
        arm("plan_prune", honour_anytime=True, protect_last_turns=2),
        arm("rag", min_chars=20),
        arm("cold_prune", **COLD),
    ]
    arms |= examples | {f"{a.name}_early": a for a in early}
    return arms | {a.name: a for a in deletion_grid()}


def few_arms() -> dict[str, ArmSpec]:
    """Arms that between them run every policy and every branch of it, made to fire early."""
    arms = all_arms()
    early = {name: spec for name, spec in arms.items() if name.endswith("_early")}
    few = early | {name: arms[name] for name in PLAIN}
    covered = {spec.policy.kind for spec in few.values()}
    return few | {n: spec for n, spec in arms.items() if spec.policy.kind not in covered}


PLAIN = (
    *("full_history", "plan_prune", "sham_cleanup", "random_prune", "prune_finished_step"),
    *("plan_prune_reasoning", "plan_prune_note", "clear_thinking", "dedup", "purge_errors"),
    *("supersede_writes", "discard_anytime", "agent_diet_random"),
    *("delete_both_turn50_delayed", "delete_both_token50_immediate"),
)
