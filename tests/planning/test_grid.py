"""The plan: paired blocks, random but repeatable order, nothing twice."""

from collections import Counter

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.grid import planned_runs
from pipeline.records.plan import blocks_of, plan_bytes, read_plan

ROWS = [{"instance_id": f"toy__repo-{n}", "repo": "toy/repo"} for n in range(12)]
DIGESTS = {row["instance_id"]: f"{n:064d}" for n, row in enumerate(ROWS)}


def plan(*overrides, rows=ROWS):
    return planned_runs(sweep_spec(["+sweep=demo", *overrides]), rows, DIGESTS)


def test_every_cell_meets_every_instance_once():
    runs = plan("seeds=[0,1]")
    counts = Counter((run.arm, run.seed, run.instance_id) for run in runs)
    assert set(counts.values()) == {1}
    assert len(counts) == 4 * 2 * 12
    assert len({run.run_id for run in runs}) == len(runs)


def test_a_block_holds_all_arms_of_one_instance_and_seed_together():
    for block in blocks_of(plan()):
        assert {run.arm for run in block.runs} == {
            "full_history",
            "plan_prune",
            "sham_cleanup",
            "no_plan",
        }
        assert {run.position for run in block.runs} == set(
            range(block.runs[0].position, block.runs[0].position + len(block.runs))
        )


def test_the_order_of_arms_is_random_across_blocks_but_the_same_each_time():
    first_arms = Counter(block.runs[0].arm for block in blocks_of(plan("seeds=[0,1,2]")))
    assert len(first_arms) == 4
    assert plan() == plan(rows=ROWS[::-1])


def test_with_looks_instances_come_in_the_order_of_the_looks_each_with_all_its_seeds():
    looks = "analysis.looks=[0.5,1.0]"
    runs = plan("seeds=[0,1]", looks)
    order = sweep_spec(["+sweep=demo", looks]).analysis.look_order(list(DIGESTS))
    assert list(dict.fromkeys(run.instance_id for run in runs)) == order
    half = runs[: len(runs) // 2]
    assert {run.instance_id for run in half} == set(order[:6])
    assert {run.run_id for run in runs} == {run.run_id for run in plan("seeds=[0,1]")}


def test_a_large_set_of_arms_is_split():
    assert {len(block.runs) for block in blocks_of(plan("max_block_runs=3"))} == {1, 3}


def test_arms_may_have_seeds_of_their_own():
    runs = plan("seeds=[0]", "arms.full_history.seeds=[0,1,2]")
    seeds = {arm: {r.seed for r in runs if r.arm == arm} for arm in ("full_history", "plan_prune")}
    assert seeds == {"full_history": {0, 1, 2}, "plan_prune": {0}}


def test_run_ids_follow_the_science_and_ignore_where_it_runs():
    before = {run.run_id for run in plan()}
    assert before == {run.run_id for run in plan("cluster.rollout.concurrency=64", "results=x")}
    changed = plan("agent.step_limit=7")
    assert before.isdisjoint(run.run_id for run in changed)


def test_a_changed_row_changes_the_ids_of_its_runs_only():
    spec = sweep_spec(["+sweep=demo"])
    edited = {**DIGESTS, "toy__repo-3": "f" * 64}
    before = {run.run_id for run in planned_runs(spec, ROWS, DIGESTS)}
    after = planned_runs(spec, ROWS, edited)
    assert {r.instance_id for r in after if r.run_id not in before} == {"toy__repo-3"}


def test_an_instance_given_twice_is_refused():
    with pytest.raises(ValueError, match="planned twice"):
        plan(rows=[*ROWS, ROWS[0]])


def test_the_plan_survives_its_file(tmp_path):
    runs = plan()
    (tmp_path / "plan.parquet").write_bytes(plan_bytes(runs))
    assert read_plan(tmp_path / "plan.parquet") == runs


def test_a_block_holds_the_arms_of_one_agent_and_an_agent_keeps_its_ids_among_others():
    words = ["+agent@agents.mini=mini", "+agent@agents.short=mini", "agents.short.step_limit=5"]
    runs = plan(*words)
    assert all(len({run.agent for run in block.runs}) == 1 for block in blocks_of(runs))
    alone = {run.run_id: run.block_id for run in plan()}
    assert {run.run_id: run.block_id for run in runs if run.agent == "mini"} == alone
    assert len(runs) == 2 * len(alone)
    first = [run.agent for run in runs[: 2 * len({run.arm for run in runs})]]
    assert set(first) == {"mini", "short"}, "agents alternate within an instance"
