"""What a site has is said once, in conf/site/mine.yaml; what is missing comes with its line."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline import launch, stage
from pipeline.benchmarks.staging import stage_dataset
from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.planning import config
from pipeline.planning.config import CONF, ConfigError, sweep_spec
from pipeline.serving.staged import read_manifest


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of conf in which the shipped file for Grace is in use, as the page says."""
    copy = tmp_path / "conf"
    shutil.copytree(CONF, copy)
    text = (copy / "site" / "grace.yaml").read_text()
    filled = text.replace('"ACCOUNT"', '"12345"').replace('"COMMIT"', '"12e4567"')
    (copy / "site" / "mine.yaml").write_text(filled)
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(config.sweep_spec, "__kwdefaults__", {"conf": copy})
    return copy


def test_full500_needs_no_other_word_on_grace(conf: Path, tmp_path: Path) -> None:
    spec = sweep_spec(["+sweep=full500"], conf=conf)
    (model,) = spec.models.values()
    assert model.revision == "12e4567"
    assert model.serve.runtime == "apptainer"
    assert model.serve.image == f"{tmp_path}/scratch/planprune/vllm.sif"
    assert model.serve.model_path == f"{tmp_path}/scratch/planprune/models/qwen3_5_27b"
    assert (spec.cluster.name, spec.cluster.account) == ("grace", "12345")
    assert spec.benchmark.dataset == "data/verified.parquet"


def test_a_launchs_own_words_come_before_the_sites(conf: Path) -> None:
    words = ["model.revision=other", "cluster.account=else", "model.serve.image=/x.sif"]
    spec = sweep_spec(["+sweep=full500", *words], conf=conf)
    (model,) = spec.models.values()
    assert (model.revision, spec.cluster.account) == ("other", "else")
    assert model.serve.image == "/x.sif"


def test_another_models_weights_are_never_taken_for_this_ones(conf: Path) -> None:
    spec = sweep_spec(["+sweep=full500", "model=qwen3_5_9b"], conf=conf)
    (model,) = spec.models.values()
    assert (model.revision, model.serve.model_path) == (None, None)


def test_without_the_file_every_sweep_composes_as_before() -> None:
    (model,) = sweep_spec(["+sweep=full500"]).models.values()
    if not (CONF / "site" / "mine.yaml").exists():
        assert (model.revision, model.serve.model_path) == (None, None)


def test_launch_says_the_line_that_brings_each_missing_thing(
    conf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["+sweep=smoke25", "sandbox=apptainer", f"results={tmp_path}/r"]
    dataset = tmp_path / "verified.parquet"
    assert launch.main([*words, f"dataset={dataset}"]) == 2
    said = capsys.readouterr().err
    assert f"pipeline.stage dataset SWE-bench/SWE-bench_Verified --to {dataset}" in said

    rows = tmp_path / "rows.json"
    stage_dataset(str(_toy_file(tmp_path)), rows)
    assert launch.main([*words, f"dataset={rows}", "instances.sample=2"]) == 2
    said = capsys.readouterr().err
    models = f"{tmp_path}/scratch/planprune/models/qwen3_5_27b"
    assert (
        f"sbatch slurm/stage.sbatch model Qwen/Qwen3.5-27B --revision 12e4567 --to {models}" in said
    )
    assert f"sbatch slurm/build_vllm.sbatch {tmp_path}/scratch/planprune/vllm.sif" in said
    assert "sbatch slurm/stage.sbatch images --sweep +sweep=smoke25 sandbox=apptainer" in said
    assert conf.exists()


def test_a_sweeps_models_are_staged_by_its_words_alone(
    conf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, folder = tmp_path / "source", tmp_path / "weights"
    source.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (source / name).write_text("{}")
    words = ["+sweep=smoke25", f"model.repo={source}", f"model.serve.model_path={folder}"]
    assert stage.main(["model", "--sweep", *words]) == 0
    manifest = read_manifest(folder)
    assert manifest is not None
    assert (manifest.repo, manifest.revision) == (str(source), "12e4567")
    assert stage.main(["model", "--sweep", "+sweep=smoke25", "model.revision=null"]) == 1
    assert "conf/site/mine.yaml" in capsys.readouterr().err
    assert stage.main(["model"]) == 1
    assert conf.exists()


@pytest.mark.parametrize("name", ["verified.parquet", "verified.json"])
def test_a_dataset_gets_the_name_that_the_benchmark_expects(tmp_path: Path, name: str) -> None:
    source = _toy_file(tmp_path)
    staged = stage_dataset(str(source), tmp_path / "data" / name)
    assert staged.file == name
    assert staged.n_rows == len(toy_rows())
    assert (tmp_path / "data" / f"{name}.manifest.json").exists()


def test_a_misspelt_key_of_the_sites_file_is_refused(conf: Path) -> None:
    (conf / "site" / "mine.yaml").write_text("# @package _global_\ncluster: {acount: x}\n")
    with pytest.raises(ConfigError, match="acount"):
        sweep_spec(["+sweep=demo"], conf=conf)


def _toy_file(folder: Path) -> Path:
    path = folder / "toy.json"
    rows = [{**row, "instance_id": f"org__repo-{n}"} for n, row in enumerate(toy_rows())]
    path.write_text(json.dumps(rows))
    return path
