"""A results folder keeps what was locked: the same sweep resumes, a grown one extends it."""

import shutil
from dataclasses import replace

import pytest
import yaml

from pipeline.arms.dedup import Dedup
from pipeline.arms.plan_prune import PlanPrune
from pipeline.benchmarks.rows import image_reference
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import FolderError, check_folder, write_folder
from pipeline.planning.prepare import prepare
from pipeline.planning.submit import record_submission
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError, read_lock, read_rows
from pipeline.records.plan import read_plan
from pipeline.sandbox.images import ImageRecord, ImageStore
from pipeline.serving.staging import stage_model
from pipeline.worker import rollout_job
from tests.words import words_of

INSTANCES = "instances.sample=3"


def sweep(folder, *overrides):
    return prepare(sweep_spec(words_of("+sweep=demo", INSTANCES, f"results={folder}", *overrides)))


@pytest.fixture
def layout(tmp_path):
    """A folder into which the demo was launched."""
    layout = Layout(tmp_path / "results")
    first = sweep(layout.root)
    write_folder(layout, first, "new")
    record_submission(layout, "local", [])
    return layout


def opened(layout, *overrides):
    return check_folder(layout, sweep(layout.root, *overrides))


def test_lock_rows_and_plan_are_read_back_as_they_were_written(layout):
    again = sweep(layout.root)
    lock = read_lock(layout.lock)
    assert lock.spec == again.lock.spec
    assert lock.rows_sha256 == again.lock.rows_sha256
    assert read_plan(layout.plan) == list(again.runs)
    assert read_rows(layout.dataset) == {r["instance_id"]: dict(r) for r in again.rows}


def test_the_same_sweep_resumes(layout):
    how, again = opened(layout)
    assert how == "resumed"
    assert list(again.runs) == read_plan(layout.plan)


def test_a_folder_that_was_locked_with_the_one_agent_of_older_versions_resumes(layout):
    data = yaml.safe_load(layout.lock.read_text())
    data["spec"]["agent"] = data["spec"].pop("agents")["mini"]
    layout.lock.write_text(yaml.safe_dump(data))
    assert opened(layout)[0] == "resumed"
    assert list(read_lock(layout.lock).spec.agents) == ["mini"]


def test_another_agent_extends_the_sweep(layout):
    before = read_plan(layout.plan)
    words = ["+agent@agents.mini=mini", "+agent@agents.short=mini", "agents.short.step_limit=5"]
    how, again = opened(layout, *words)
    assert how == "extended"
    assert list(again.runs)[: len(before)] == before
    assert {run.agent for run in again.runs[len(before) :]} == {"short"}


def test_runtime_settings_may_change_on_resume_and_are_taken(layout):
    how, again = opened(layout, "cluster.rollout.concurrency=9")
    assert how == "resumed"
    assert again.lock.spec.cluster.rollout.concurrency == 9


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("agent.step_limit=7", "agents.mini.step_limit: 250 -> 7"),
        ("model.context_length=9000", "models.sim.context_length"),
        (
            "arms.plan_prune.policy.protect_last_turns=4",
            "arms.plan_prune.policy.protect_last_turns",
        ),
        ("analysis.margin=0.2", "analysis.margin"),
        ("seeds=[0]", r"arms.full_history: seeds \[1\] removed"),
        ("instances.sample=2", "removed"),
        ("~arms.no_plan", "arms.no_plan: removed"),
    ],
)
def test_a_changed_or_removed_science_field_is_refused_by_name(layout, override, named):
    with pytest.raises(FolderError, match=named):
        opened(layout, override)


def test_more_seeds_arms_and_instances_extend_lock_and_plan(layout):
    before = read_plan(layout.plan)
    how, grown = opened(layout, "seeds=[0,1,2]", "+arm@arms.another=full_history")
    assert how == "extended"
    write_folder(layout, grown, how)
    after = read_plan(layout.plan)
    assert after[: len(before)] == before
    assert [run.position for run in after] == list(range(len(after)))
    added = after[len(before) :]
    assert {run.extension for run in added} == {1}
    assert {run.arm for run in added if run.seed < 2} == {"another"}
    extension = read_lock(layout.lock).extensions[0]
    assert set(extension.cells) == {run.cell_digest for run in added}
    assert opened(layout, "seeds=[0,1,2]", "+arm@arms.another=full_history")[0] == "resumed"


def test_a_relaunch_under_changed_rules_of_one_part_is_refused_and_named(layout, monkeypatch):
    monkeypatch.setattr(PlanPrune, "METHOD", 99, raising=False)
    with pytest.raises(FolderError, match=r"plan_prune: its rules changed, method \d+ -> 99"):
        opened(layout)
    lock = read_lock(layout.lock)
    assert {run.cell_digest for run in read_plan(layout.plan)} == set(lock.cells)


def test_rules_that_no_arm_of_the_sweep_follows_may_change(layout, monkeypatch):
    monkeypatch.setattr(Dedup, "METHOD", 99, raising=False)
    assert opened(layout)[0] == "resumed"


def test_a_lock_records_the_methods_of_an_arm_that_was_added(layout, monkeypatch):
    monkeypatch.setattr(Dedup, "METHOD", 99, raising=False)
    how, grown = opened(layout, "+arm@arms.dedup=dedup")
    write_folder(layout, grown, how)
    assert read_lock(layout.lock).methods["dedup"] == 99
    assert {run.cell_digest for run in read_plan(layout.plan)} == set(read_lock(layout.lock).cells)
    assert opened(layout, "+arm@arms.dedup=dedup")[0] == "resumed"


def test_a_worker_makes_no_runs_by_other_rules_than_the_folder_was_locked_with(layout, monkeypatch):
    monkeypatch.setattr(PlanPrune, "METHOD", 99, raising=False)
    with pytest.raises(ValueError, match="plan_prune: its rules changed"):
        rollout_job.main(str(layout.root), "sim", 0)
    assert layout.journal_paths() == []


def test_a_science_field_of_the_sweep_itself_that_differs_is_refused(layout):
    with pytest.raises(FolderError, match="share_cache: False -> True"):
        opened(layout, "share_cache=true")


def test_until_something_is_submitted_settings_may_change(tmp_path):
    layout = Layout(tmp_path / "results")
    write_folder(layout, sweep(layout.root), "new")
    how, changed = opened(layout, "analysis.exclusions=[toy__ledger-1]")
    assert how == "relocked"
    write_folder(layout, changed, how)
    assert read_lock(layout.lock).spec.analysis.exclusions == ("toy__ledger-1",)
    assert read_lock(layout.lock).analysis_sha256 == changed.lock.analysis_sha256


def test_staged_images_are_locked_and_others_in_their_place_are_refused(tmp_path):
    store = ImageStore(tmp_path / "images", image_reference)
    store.folder.mkdir()
    (store.folder / "x.sif").write_bytes(b"sif")
    layout = Layout(tmp_path / "results")
    overrides = ["sandbox=apptainer", f"cluster.images={store.folder}"]
    rows = sweep(layout.root).rows

    def stage(row, digest):
        store.write_record(
            ImageRecord(
                reference=image_reference(row),
                file="x.sif",
                sif_sha256="5" * 64,
                sif_bytes=3,
                source="test",
                manifest_digest=digest,
            )
        )

    stage(rows[0], "sha256:a")
    write_folder(layout, sweep(layout.root, *overrides), "new")
    record_submission(layout, "local", [])
    name = rows[0]["instance_id"]
    assert read_lock(layout.lock).image_digests[name] == "sha256:a"
    for row in rows[1:]:
        stage(row, None)
    how, again = opened(layout, *overrides)
    assert how == "resumed"
    assert again.lock.image_digests[name] == "sha256:a"
    assert set(again.lock.image_digests) == {row["instance_id"] for row in rows}
    stage(rows[0], "sha256:b")
    with pytest.raises(FolderError, match=f"images: that of {name} changed, sha256:a -> sha256:b"):
        opened(layout, *overrides)


def test_a_folder_of_another_sweep_is_refused(layout):
    other = sweep(layout.root)
    lock = replace(other.lock, spec=replace(other.lock.spec, name="smoke25"))
    with pytest.raises(FolderError, match="holds the sweep 'demo', not 'smoke25'"):
        check_folder(layout, replace(other, lock=lock))


def test_a_folder_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("\\section{}")
    with pytest.raises(FolderError, match="holds no sweep"):
        check_folder(Layout(tmp_path), sweep(tmp_path))


def test_a_folder_without_a_lock_says_so(tmp_path):
    with pytest.raises(LockError, match="no results folder"):
        read_lock(tmp_path / "sweep.lock.yaml")


def test_a_lock_of_a_later_format_names_both_formats(layout):
    layout.lock.write_text(layout.lock.read_text().replace("\nformat: 1", "\nformat: 9"))
    with pytest.raises(LockError, match="format 9; this version reads 1"):
        read_lock(layout.lock)


DAMAGES = {"missing": None, "empty": b"", "half": b"PAR1\x15\x04: {", "foreign": b"\xff\xfe\x00 no"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["lock", "plan", "dataset"])
def test_a_damaged_first_file_is_named_and_relaunching_without_the_lock_mends_it(
    layout, which, damage
):
    path = getattr(layout, which)
    plan = read_plan(layout.plan)
    path.unlink()
    if DAMAGES[damage] is not None:
        path.write_bytes(DAMAGES[damage])
    with pytest.raises(LockError, match=path.name):
        read_lock(layout.lock), read_plan(layout.plan), read_rows(layout.dataset)
    layout.lock.unlink(missing_ok=True)
    how, again = opened(layout)
    write_folder(layout, again, how)
    assert how == "new"
    assert read_plan(layout.plan) == plan
    assert set(read_rows(layout.dataset)) == {run.instance_id for run in plan}


def test_a_results_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FolderError, match="is not a folder"):
        check_folder(Layout(tmp_path / "taken"), sweep(tmp_path / "taken"))
    with pytest.raises(LockError, match="no results folder"):
        read_lock(Layout(tmp_path / "taken").lock)


def test_what_was_staged_is_in_the_lock_and_other_weights_are_refused_on_resume(tmp_path):
    weights, layout = tmp_path / "weights", Layout(tmp_path / "results")
    words = ["model=tiny", f"model.serve.model_path={weights}"]

    def staged(content):
        source = tmp_path / content
        source.mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (source / name).write_text(content)
        shutil.rmtree(weights, ignore_errors=True)
        return stage_model(
            str(source), weights, repo="planprune/tiny-qwen3", revision="1", tell=lambda _: None
        )

    manifest = staged("first")
    write_folder(layout, sweep(layout.root, *words), "new")
    record_submission(layout, "local", [])
    locked = read_lock(layout.lock).staged_models["tiny"]
    assert (locked.repo, locked.revision) == ("planprune/tiny-qwen3", "1")
    assert locked.files_sha256 == manifest.digest
    assert opened(layout, *words)[0] == "resumed"
    staged("other")
    with pytest.raises(FolderError, match=r"models\.tiny: its staged files changed"):
        opened(layout, *words)
