"""Training on features whose truth is known: what it learns, how it stops and goes on."""

import json
from dataclasses import replace

from tests.linehead.extra import need_torch

need_torch()

import pytest  # noqa: E402
import torch  # noqa: E402

from pipeline.linehead.checkpoint import CARD, WEIGHTS, load_head  # noqa: E402
from pipeline.linehead.evaluation import found_heads, run_eval_job  # noqa: E402
from pipeline.linehead.feature_store import FeatureWriter, open_store  # noqa: E402
from pipeline.linehead.label_table import LabelledOutput, write_labels  # noqa: E402
from pipeline.linehead.metrics import metrics_at  # noqa: E402
from pipeline.linehead.probe import mean_states, run_probe_job  # noqa: E402
from pipeline.linehead.scoring import scored  # noqa: E402
from pipeline.linehead.settings import (  # noqa: E402
    EvalJob,
    JudgeSettings,
    ProbeJob,
    SplitSettings,
    TrainJob,
    TrainSettings,
)
from pipeline.linehead.training import STATE, run_train_job  # noqa: E402
from tests.fakes import ScriptedModel, says  # noqa: E402
from tests.linehead.stores import FACTS, made_store  # noqa: E402

QUICK = TrainSettings(epochs=4, first_lr=1e-2, last_lr=5e-3, batch_samples=4)


def job_for(folder, out, **more):
    return TrainJob(**{"features": str(folder), "out": str(out), "train": QUICK, "threads": 1,
                       **more})  # fmt: skip


def train(job, said=None):
    said = [] if said is None else said
    run_train_job(job, say=said.append, now=lambda: 0.0)
    return said


class StoppedError(Exception):
    """Stands for a kill."""


def stopping_after(n_epochs):
    def say(text):
        if f"epoch {n_epochs}:" in text:
            raise StoppedError

    return say


def test_a_head_learns_what_the_states_say_and_its_card_tells_how(tmp_path):
    store = made_store(tmp_path / "f")
    split = SplitSettings(test_instances=("task-0",))
    train(job_for(tmp_path / "f", tmp_path / "head", split=split))
    trained = load_head(tmp_path / "head")
    test = [e for e in store.entries if e.instance_id == "task-0"]
    assert metrics_at(scored(trained.head, store.each(test)), 0.5, fill_gaps=False).f1 > 0.95
    card = trained.card
    assert card["backbone"] == "made-up"
    assert card["layer"] == "last hidden state, after the final norm"
    assert card["labels_sha256"] == FACTS["labels_sha256"]
    assert card["features_sha256"] == store.sha256
    assert "task-0" not in card["split"]["validation_instances"]
    assert card["split"]["n_train"] + card["split"]["n_validation"] == 20
    assert 0 < trained.threshold < 1
    assert len(card["validation"]["sweep"]) == 19
    assert not (tmp_path / "head" / STATE).exists()
    metrics = json.loads((tmp_path / "head" / "metrics.json").read_text())
    assert [h["epoch"] for h in metrics["history"]] == [1, 2, 3, 4]
    assert metrics["peak_memory_mb"] > 0


def test_the_same_seed_gives_the_same_head_and_another_seed_another(tmp_path):
    made_store(tmp_path / "f")
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(job_for(tmp_path / "f", tmp_path / name, train=replace(QUICK, seed=seed)))
    a, b, c = ((tmp_path / name / WEIGHTS).read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_a_stopped_training_goes_on_and_ends_with_the_same_weights(tmp_path, n_epochs):
    made_store(tmp_path / "f")
    train(job_for(tmp_path / "f", tmp_path / "whole"))
    job = job_for(tmp_path / "f", tmp_path / "stopped")
    with pytest.raises(StoppedError):
        run_train_job(job, say=stopping_after(n_epochs), now=lambda: 0.0)
    assert (tmp_path / "stopped" / STATE).exists()
    assert not (tmp_path / "stopped" / CARD).exists()
    said = train(job)
    assert [s.split(":")[0].strip() for s in said if "epoch" in s and "loss" in s] == [
        f"epoch {n}" for n in range(n_epochs + 1, 5)
    ]
    assert (tmp_path / "stopped" / WEIGHTS).read_bytes() == (
        tmp_path / "whole" / WEIGHTS
    ).read_bytes()


def test_a_finished_head_is_left_alone_and_another_job_is_refused(tmp_path):
    made_store(tmp_path / "f")
    job = job_for(tmp_path / "f", tmp_path / "head")
    train(job)
    assert "finished already" in train(job)[1]
    with pytest.raises(ValueError, match="other features or settings"):
        train(replace(job, train=replace(QUICK, loss="bce")))


def test_the_best_epoch_is_kept_not_the_last(tmp_path):
    store = made_store(tmp_path / "f")
    # A rate that wrecks what the first epochs learnt.
    wild = replace(QUICK, epochs=6, first_lr=0.01, last_lr=30.0, warmup_share=0.0)
    train(job_for(tmp_path / "f", tmp_path / "head", train=wild))
    history = json.loads((tmp_path / "head" / "metrics.json").read_text())["history"]
    values = [h["validation"]["f1"] for h in history]
    trained = load_head(tmp_path / "head")
    assert trained.card["best_epoch"] == values.index(max(values)) + 1
    validation = [
        e for e in store.entries if e.instance_id in trained.card["split"]["validation_instances"]
    ]
    found = metrics_at(scored(trained.head, store.each(validation)), 0.5, fill_gaps=True)
    assert found.f1 == pytest.approx(max(values))


def test_ablations_are_trained_beside_and_compared_in_one_table(tmp_path):
    made_store(tmp_path / "f")
    quick = replace(QUICK, epochs=1)
    split = SplitSettings(test_instances=("task-1",))
    train(job_for(tmp_path / "f", tmp_path / "head", ablations=True, train=quick, split=split))
    names = {p.name for p in (tmp_path / "head" / "ablations").iterdir()}
    assert names == {"bce", "corpus_focal", "dice", "tversky", "no_length_embedding"}
    job = EvalJob(
        features=str(tmp_path / "f"), heads=(str(tmp_path / "head"),), out=str(tmp_path / "e")
    )
    printed = run_eval_job(job, {})
    assert "test: task-1" in printed[0]
    found = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert found["part"] == "test"
    rows = {r["method"]: r for r in found["rows"]}
    assert list(rows)[:4] == ["keep_all", "majority", "length", "surface"]
    assert rows["keep_all"]["recall"] == 1.0
    assert rows["majority"]["f1"] == 0.0
    assert len(rows) == 10
    assert rows["head: no_length_embedding"]["length_embedding"] == "no"
    assert {r["loss"] for r in found["rows"]} >= {"balanced_focal", "bce", "dice", "tversky"}
    assert sum(b["n_lines"] for b in rows["head"]["by_length"].values()) == found["n_lines"]


def test_an_evaluation_without_test_instances_says_that_it_flatters(tmp_path):
    made_store(tmp_path / "f")
    train(job_for(tmp_path / "f", tmp_path / "head", train=replace(QUICK, epochs=1)))
    job = EvalJob(
        features=str(tmp_path / "f"), heads=(str(tmp_path / "head"),), out=str(tmp_path / "e")
    )
    assert "flatter the heads" in run_eval_job(job, {})[0]


def test_a_judges_grade_is_a_column_beside_f1(tmp_path):
    store = made_store(tmp_path / "f")
    split = SplitSettings(test_instances=("task-0",))
    train(job_for(tmp_path / "f", tmp_path / "head", train=replace(QUICK, epochs=1), split=split))
    outputs = [
        LabelledOutput(sample_id=f.entry.sample_id, run_id="r", instance_id=f.entry.instance_id,
                       message_index=0, step_index=0, command="c", kept=f.kept,
                       text="line\n" * f.entry.n_lines, followed="-")
        for f in store.each(store.entries)
    ]  # fmt: skip
    write_labels(tmp_path / "labels.parquet", outputs, {"labeller": "test"})
    with ScriptedModel(lambda _: says('{"reasoning": "fine", "score": 7.5}')) as server:
        job = EvalJob(
            features=str(tmp_path / "f"), heads=(str(tmp_path / "head"),), out=str(tmp_path / "e"),
            labels=str(tmp_path / "labels.parquet"), judge_samples=3,
            judge=JudgeSettings(base_url=server.base_url, model="scripted"),
        )  # fmt: skip
        printed = run_eval_job(job, {})
    assert len(server.requests) == 3
    assert "| judge |" in printed[2]
    assert "by scripted of 3 outputs" in printed[-1]
    found = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert [r.get("judge") for r in found["rows"]] == [None] * 4 + [7.5]
    assert (found["n_graded"], found["judge_cost"]) == (3, 0.0)


def test_heads_in_folders_of_one_name_are_told_apart(tmp_path):
    made_store(tmp_path / "f")
    for name, seed in (("a", 0), ("b", 1)):
        quick = replace(QUICK, epochs=1, seed=seed)
        train(job_for(tmp_path / "f", tmp_path / name / "head", train=quick))
    found = found_heads([tmp_path / "a" / "head", tmp_path / "b" / "head"])
    assert list(found) == ["head", str(tmp_path / "b" / "head")]
    assert [head.card["train"]["seed"] for head in found.values()] == [0, 1]


def test_heads_of_other_features_are_refused(tmp_path):
    made_store(tmp_path / "f")
    made_store(tmp_path / "g", seed=1, n_outputs=20)
    train(job_for(tmp_path / "f", tmp_path / "head", train=replace(QUICK, epochs=1)))
    job = EvalJob(features=str(tmp_path / "g"), heads=(str(tmp_path / "head"),), out=str(tmp_path))
    with pytest.raises(ValueError, match="trained on other features"):
        run_eval_job(job, {})


def test_the_probe_finds_a_signal_and_finds_none_where_there_is_none(tmp_path):
    for name, signal in (("with", 2.0), ("without", 0.0)):
        made_store(tmp_path / name, signal=signal, n_outputs=40)
        split = SplitSettings(test_instances=("task-0", "task-1"))
        job = ProbeJob(features=str(tmp_path / name), out=str(tmp_path / f"{name}-p"), split=split)
        run_probe_job(job)
    found, nothing = (
        json.loads((tmp_path / f"{n}-p" / "probe.json").read_text())["rules"]
        for n in ("with", "without")
    )
    assert found["logistic"]["auc"] > 0.95
    assert found["lda"]["f1"] > found["keep_all"]["f1"] > found["majority"]["f1"]
    assert abs(nothing["logistic"]["auc"] - 0.5) < 0.2
    for ending in ("svg", "pdf", "png"):
        assert (tmp_path / "with-p" / f"probe.{ending}").stat().st_size > 1000


def test_a_lines_mean_state_is_the_mean_over_its_tokens(tmp_path):
    store = made_store(tmp_path / "f", n_outputs=8)
    for item in store.each(store.entries):
        means = mean_states(item)
        for line in range(item.entry.n_lines):
            mine = (item.lines.first <= line) & (item.lines.last >= line)
            expected = item.hidden[torch.from_numpy(mine)].float().mean(dim=0)
            torch.testing.assert_close(torch.from_numpy(means[line]).float(), expected)


# --- the store -----------------------------------------------------------------------------------
def test_a_store_is_unfinished_without_its_index_and_goes_on_from_its_shards(tmp_path):
    store = made_store(tmp_path / "f")
    shards = {e.shard for e in store.entries}
    assert len(shards) > 2
    (tmp_path / "f" / "index.json").unlink()
    with pytest.raises(ValueError, match="goes on where it stopped"):
        open_store(tmp_path / "f")
    writer = FeatureWriter(tmp_path / "f", FACTS, shard_bytes=1e9)
    assert writer.done == {e.sample_id for e in store.entries}
    writer.finish([e.sample_id for e in store.entries], {"n_skipped": 0})
    assert open_store(tmp_path / "f").sha256 == store.sha256


def test_a_shard_that_is_gone_is_made_again_and_no_other_is_written_over(tmp_path):
    store = made_store(tmp_path / "f")
    known = {f.entry.sample_id: f for f in store.each(store.entries)}
    gone = store.entries[0].shard
    (tmp_path / "f" / gone).unlink()
    with pytest.raises(ValueError, match=f"{gone} is gone; run the same"):
        open_store(tmp_path / "f")
    writer = FeatureWriter(tmp_path / "f", FACTS, shard_bytes=1e9)
    for item in (f for name, f in known.items() if name not in writer.done):
        writer.add(
            item.hidden,
            item.lines,
            sample_id=item.entry.sample_id,
            instance_id=item.entry.instance_id,
            kept=item.kept,
            line_chars=item.line_chars.tolist(),
            prompt_tokens=item.entry.prompt_tokens,
        )
    writer.finish([e.sample_id for e in store.entries], {"n_skipped": 0})
    again = open_store(tmp_path / "f")
    assert [e.sample_id for e in again.entries] == list(known)
    assert again.sha256 == store.sha256
    for item in again.each(again.entries):
        assert torch.equal(item.hidden, known[item.entry.sample_id].hidden)


def test_a_damaged_shard_is_named_with_what_to_do(tmp_path):
    store = made_store(tmp_path / "f")
    shard = tmp_path / "f" / store.entries[-1].shard
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{shard.name} is damaged .* remove it"):
        FeatureWriter(tmp_path / "f", FACTS, shard_bytes=1e9)


def test_shards_of_other_features_are_never_mixed_in(tmp_path):
    made_store(tmp_path / "f")
    with pytest.raises(ValueError, match="another backbone"):
        FeatureWriter(tmp_path / "f", {**FACTS, "backbone": "other"}, shard_bytes=1.0)
