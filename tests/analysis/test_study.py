"""From tables to findings: true effects are found, and odd sweeps give plain sentences."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.gate import InvalidSweepError
from pipeline.analysis.paired_table import paired_table_text
from pipeline.analysis.publish import analyze_results
from pipeline.analysis.study import Study, opened_study
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.records.layout import Layout
from pipeline.spec.analysis import AnalysisPlan

from .conftest import edit_table


def study_of(results: Path, **kwargs: object) -> Study:
    connection, study = opened_study(results, **kwargs)  # type: ignore[arg-type]
    connection.close()
    return study


def test_true_effects_lie_in_their_intervals(tmp_path: Path):
    sweep = SyntheticSweep(n_instances=150, seeds=(0, 1, 2), mean_steps=12, seed=3)
    write_sweep(sweep, tmp_path)
    (group,) = study_of(tmp_path).groups
    for contrast in group.contrasts:
        truth = sweep.arms[contrast.arm]
        assert contrast.tokens.low <= truth.tokens <= contrast.tokens.high
        assert contrast.solve is not None
        found = contrast.solve.difference
        assert found.low <= truth.solve <= found.high
        assert found.value == pytest.approx(contrast.solve.arm_rate - contrast.solve.reference_rate)


def test_arms_may_have_seed_counts_of_their_own(sweep: Path):
    """Two baselines and one treatment: the second seed of an arm was never planned."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    layout = Layout(sweep)
    for path in (layout.plan, layout.table_file("runs")):
        table = pq.read_table(path)
        gone = pc.and_(pc.equal(table["arm"], "plan_prune"), pc.equal(table["seed"], 1))
        pq.write_table(table.filter(pc.invert(gone)), path)
    (group,) = study_of(sweep).groups
    contrast = next(c for c in group.contrasts if c.arm == "plan_prune")
    assert len(group.group.arms["plan_prune"].seeds) == 1
    assert contrast.n_paired == 24
    assert contrast.solve is not None
    assert contrast.solve.test.method == "instance bootstrap"


def test_unpaired_instances_are_named_and_bounded(sweep: Path):
    lost: list[str] = []

    def without_one(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        gone = next(r for r in rows if r["arm"] == "plan_prune")
        lost.append(str(gone["instance_id"]))
        return [r for r in rows if r is not gone]

    edit_table(sweep, "runs", without_one)
    with pytest.raises(InvalidSweepError, match="1 of 192 planned runs have no result"):
        study_of(sweep)
    study = study_of(sweep, allow_invalid=True)
    (group,) = study.groups
    hit = {c.arm: c for c in group.contrasts}
    assert hit["plan_prune"].unpaired == tuple(lost)
    assert hit["plan_prune"].n_paired == 23
    assert hit["sham_cleanup"].unpaired == ()
    solve = hit["plan_prune"].solve
    assert solve is not None
    assert solve.worst_case.high - solve.worst_case.low == pytest.approx(1 / 24 / 2)
    assert paired_table_text(study).startswith("NOT VALID")


@pytest.mark.parametrize(("allowed", "refused"), [(0.01, True), (0.05, False)])
def test_a_contrast_with_more_lost_pairs_than_planned_for_is_refused_by_name(
    sweep: Path, allowed: float, refused: bool
):
    def failed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        next(r for r in rows if r["arm"] == "plan_prune")["failure_class"] = "infra_server"
        return rows

    edit_table(sweep, "runs", failed)
    lock = Layout(sweep).lock
    lock.write_text(
        lock.read_text().replace("max_missing_share: 0.01", f"max_missing_share: {allowed}")
    )
    with pytest.raises(InvalidSweepError) as error:  # the gate has other grounds as well
        study_of(sweep)
    sentence = "is refused: 1 of 24 pairs are lost (runs of plan_prune: 1 infra_server); worst"
    assert (sentence in str(error.value)) is refused
    assert ("plan_prune against full_history" in str(error.value)) is refused
    assert "sham_cleanup against" not in str(error.value)
    study = study_of(sweep, allow_invalid=True)
    assert any(p.code == "lost_pairs" for p in study.gate.problems) is refused
    assert (sentence in paired_table_text(study)) is refused


def test_a_folder_that_was_not_launched_is_not_told_to_launch_again(sweep: Path):
    def failed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        next(r for r in rows if r["arm"] == "plan_prune")["failure_class"] = "infra_server"
        return rows

    edit_table(sweep, "runs", failed)
    Layout(sweep).lock.unlink()
    Layout(sweep).plan.unlink()
    with pytest.raises(InvalidSweepError) as error:
        study_of(sweep)
    refusal = str(error.value)
    assert "1 of 192 runs have no result" in refusal
    assert "1 of 24 pairs are lost" in refusal
    assert "launch" not in refusal
    assert refusal.count("--allow-invalid") == 4, "for each problem, and at the end"


def test_the_plan_says_whether_earlier_reads_are_taken_together(sweep: Path):
    shown = ["p1\np2\np3\np4", "q1\nq2\nq3", "p1\np2\np3\np4\nq1\nq2\nq3"]

    path = sorted(Layout(sweep).table("messages").glob("*.parquet"))[0]
    table = pq.read_table(path)
    rows = table.to_pylist()
    outputs = [r for r in rows if r["tool"] and r["run_id"] == rows[0]["run_id"]]
    for row, text in zip(outputs, shown, strict=False):
        row |= {"command": "cat a.py", "content": text}
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)

    def refetched() -> set[tuple[object, object]]:
        found = study_of(sweep).behaviour.refetches
        keys = (found[name].to_pylist() for name in ("run_id", "message_index"))
        return set(zip(*keys, strict=True))

    by_one = refetched()
    lock = Layout(sweep).lock
    lock.write_text(lock.read_text().replace("refetch_source: one", "refetch_source: union"))
    assert by_one
    assert refetched() == by_one | {(outputs[2]["run_id"], outputs[2]["message_index"])}


def test_without_grades_tokens_are_compared_and_solve_rates_are_unknown(sweep: Path):
    Layout(sweep).table_file("grades").unlink()
    text = " ".join(paired_table_text(study_of(sweep)).split())
    assert "not graded" in text
    assert "solve rate unknown, since no pair has two grades" in text


def test_arms_that_shared_the_prefix_cache_are_labelled_with_it(
    sweep: Path, pristine: Path, tmp_path: Path
):
    label = "arms share the prefix cache"
    lock = Layout(sweep).lock
    lock.write_text(lock.read_text().replace("share_cache: false", "share_cache: true"))
    assert label not in paired_table_text(study_of(pristine))
    assert label in paired_table_text(study_of(sweep))
    summary = analyze_results(sweep, tmp_path / "out")
    compared = summary.report.read_text().partition('id="compared"')
    assert label in compared[0]
    assert label in compared[2]
    assert label in (tmp_path / "out/tables/paired_1.tex").read_text()


def test_patches_left_at_a_limit_are_a_secondary_outcome(sweep: Path):
    """They count in a rate of their own, and never in the primary one."""
    import pyarrow.parquet as pq

    from pipeline.analysis.result_tables import arm_rows
    from pipeline.records.columns import LIMIT_GRADES
    from pipeline.records.schema import table_of

    grades = pq.read_table(Layout(sweep).table_file("grades")).to_pylist()
    unsolved = next(g["run_id"] for g in grades if not g["resolved"])

    def cut(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        next(r for r in rows if r["run_id"] == unsolved)["limit_patch_sha256"] = "left"
        return rows

    edit_table(sweep, "runs", cut)
    before = {r["arm"]: r for r in arm_rows(study_of(sweep))}
    path = Layout(sweep).table_file("limit_grades")
    path.parent.mkdir()
    row = {"run_id": unsolved, "resolved": True, "patch_sha256": "left"}
    pq.write_table(table_of(LIMIT_GRADES, [row]), path)
    after = {r["arm"]: r for r in arm_rows(study_of(sweep))}
    gained = {
        arm: after[arm]["solve_rate_with_limit_patches"] - before[arm]["solve_rate"]
        for arm in after
    }
    assert sorted(gained.values()) == pytest.approx([0, 0, 0, 1 / 48])
    assert {a: r["solve_rate"] for a, r in after.items()} == {
        a: r["solve_rate"] for a, r in before.items()
    }


def test_nothing_solved_is_a_result_like_any_other(tmp_path: Path):
    write_sweep(SyntheticSweep(n_instances=30, seeds=(0,), solve_rate=1e-6), tmp_path)
    (group,) = study_of(tmp_path).groups
    solve = group.contrasts[0].solve
    assert solve is not None
    assert (solve.arm_rate, solve.reference_rate, solve.test.p_value) == (0, 0, 1)
    assert not solve.sameness.is_noninferior


def test_one_seed_one_repository_and_equal_pairs_do_not_break_anything(tmp_path: Path):
    arms = {"full_history": ArmTruth(), "twin": ArmTruth()}
    write_sweep(SyntheticSweep(n_instances=8, seeds=(0,), arms=arms), tmp_path)

    def twins(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        first = {r["instance_id"]: r for r in rows if r["arm"] == "full_history"}
        for row in rows:
            row["repo"] = "one/repo"
            row["input_tokens"] = first[row["instance_id"]]["input_tokens"]
            row["peak_context_tokens"] = first[row["instance_id"]]["peak_context_tokens"]
        return rows

    edit_table(tmp_path, "runs", twins)
    (group,) = study_of(tmp_path).groups
    (contrast,) = group.contrasts
    assert (contrast.tokens.value, contrast.tokens.low, contrast.tokens.high) == (1, 1, 1)
    assert contrast.tokens.p_value == 1
    assert np.isnan(group.noise["twin"].discordance)


def test_one_arm_is_described_and_compared_with_nothing(tmp_path: Path):
    sweep = SyntheticSweep(n_instances=5, seeds=(0,), arms={"alone": ArmTruth()}, reference="alone")
    write_sweep(sweep, tmp_path)
    text = paired_table_text(study_of(tmp_path))
    assert "only one arm: there is nothing to compare it with" in text


@pytest.mark.parametrize("tokens", [0, None])
@pytest.mark.parametrize("arm", ["full_history", "plan_prune"])
def test_an_arm_whose_servers_answered_or_counted_nothing_leaves_no_nan_and_no_warning(
    sweep: Path, arm: str, tokens: int | None
):
    def without_tokens(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        names = [name for name in rows[0] if name.endswith("_tokens")]
        return [row | dict.fromkeys(names, tokens) if row["arm"] == arm else row for row in rows]

    edit_table(sweep, "runs", without_tokens)
    summary = analyze_results(sweep, allow_invalid=True)
    text = re.sub(
        r"<style.*?</style>|<svg.*?</svg>|<[^>]*>", "", summary.report.read_text(), flags=re.S
    )
    for told in (text, paired_table_text(summary.study)):
        assert not re.search(r"\b(nan|inf)\b", told, re.IGNORECASE)


def test_an_unknown_number_stays_unknown(sweep: Path):
    """One run without a token count makes the ratio unknown; it is not taken for zero."""

    def blank(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        next(r for r in rows if r["arm"] == "plan_prune")["gpu_s"] = None
        return rows

    edit_table(sweep, "runs", blank)
    (group,) = study_of(sweep).groups
    contrast = next(c for c in group.contrasts if c.arm == "plan_prune")
    assert not np.isnan(contrast.ratios["input_tokens"].value)


def test_what_the_plan_does_not_name_is_exploratory(tmp_path: Path):
    plan = AnalysisPlan(contrasts=("plan_prune",))
    write_sweep(SyntheticSweep(n_instances=12, seeds=(0,)), tmp_path, plan=plan)
    study = study_of(tmp_path)
    (group,) = study.groups
    assert {c.arm: c.is_planned for c in group.contrasts} == {
        "observation_mask": False,
        "plan_prune": True,
        "sham_cleanup": False,
    }
    assert "* exploratory: not in the analysis plan" in paired_table_text(study)
    other = study_of(tmp_path, reference="sham_cleanup")
    assert not any(c.is_planned for c in other.groups[0].contrasts)


def test_a_reference_that_is_no_arm_is_refused_with_those_there_are(pristine: Path):
    with pytest.raises(ValueError, match="choose another with --reference: full_history"):
        study_of(pristine, reference="fullhistory")


def test_excluded_instances_are_left_out_and_listed(tmp_path: Path):
    made = SyntheticSweep(n_instances=12, seeds=(0,))
    first = tmp_path / "first"
    write_sweep(made, first)
    name = study_of(first).groups[0].group.instance_ids[0]
    write_sweep(made, tmp_path / "second", plan=AnalysisPlan(exclusions=(name,)))
    (group,) = study_of(tmp_path / "second").groups
    assert group.group.excluded == (name,)
    assert len(group.group.instance_ids) == 11


def test_the_founding_tables_shape_does_not_print_same(tmp_path: Path):
    """25 issues, the same 15 solved by both arms, 29% fewer tokens: fewer tokens, not "same"."""
    arms = {
        "full_history": ArmTruth(),
        "plan_prune": ArmTruth(policy="plan_prune", tokens=0.71, cleanups=4, prunes=True),
    }
    write_sweep(SyntheticSweep(n_instances=25, seeds=(0,), arms=arms, seed=1), tmp_path)
    order: dict[str, int] = {}

    def same_15(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        for row in rows:
            place = order.setdefault(str(row["instance_id"]), len(order))
            row["resolved"] = place < 15
        return rows

    edit_table(tmp_path, "grades", same_15)
    text = paired_table_text(study_of(tmp_path))
    assert "+0.0 [-13.3, +13.3]" in text
    assert "not shown to be as good" in text
    assert "equivalent" not in text
