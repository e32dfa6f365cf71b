"""`stage` brings datasets and models to the site whole, and says what is missing."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.benchmarks.rows import image_reference
from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.planning.config import sweep_spec
from pipeline.planning.prepare import rows_of
from pipeline.stage import main


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return toy_rows()


def test_a_dataset_file_is_copied_as_it_is(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["dataset", str(source), "--to", str(tmp_path / "staged")]) == 0
    staged = tmp_path / "staged" / "rows.jsonl"
    assert staged.read_bytes() == source.read_bytes()
    manifest = json.loads((tmp_path / "staged" / "rows.jsonl.manifest.json").read_bytes())
    assert manifest["sha256"] == sha256(source.read_bytes()).hexdigest()
    assert manifest["n_rows"] == len(rows)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_an_export_of_several_files_becomes_one(
    tmp_path: Path, rows: list[dict[str, Any]], form: str
) -> None:
    export = tmp_path / "export"
    (export / "data").mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        path = export / "data" / f"test-{number}.{form}"
        table = pa.Table.from_pylist(part)
        if form == "parquet":
            pq.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)
    assert main(["dataset", str(export), "--to", str(tmp_path / "staged")]) == 0
    assert load_rows(tmp_path / "staged" / "export.parquet") == rows


def test_a_dataset_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instance_id": "a"}\n')
    assert main(["dataset", str(tmp_path / "rows.jsonl"), "--to", str(tmp_path / "staged")]) == 1
    assert "rows.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "staged").exists()


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (folder / "model-1.safetensors").write_bytes(b"one")
    (folder / "model-2.safetensors").write_bytes(b"two")
    return folder


def test_a_model_is_copied_with_the_digest_of_every_file(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    assert main(["model", str(source), "--to", str(tmp_path / "staged")]) == 0
    manifest = json.loads((tmp_path / "staged" / "planprune-manifest.json").read_bytes())
    assert manifest["sha256"]["model-2.safetensors"] == sha256(b"two").hexdigest()
    assert len(manifest["sha256"]) == 5


def test_a_model_without_a_shard_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model(tmp_path / "model")
    (source / "model-2.safetensors").unlink()
    assert main(["model", str(source), "--to", str(tmp_path / "staged")]) == 1
    assert "model-2.safetensors" in capsys.readouterr().err


def test_images_are_estimated_without_fetching(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_bytes(b"x" * 1000)
    to = str(tmp_path / "images")
    assert main(["images", "--toy", "--root", str(tmp_path / "root"), "--to", to, "--dry-run"]) == 0
    assert "images to fetch" in capsys.readouterr().out
    assert main(["images", "--toy", "--to", to, "--verify"]) == 1
    assert "broken or missing" in capsys.readouterr().out


def test_the_images_of_a_sweep_are_those_of_its_instances_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["+sweep=demo", "instances.sample=3", f"cluster.images={tmp_path}/images"]
    ids = {str(row["instance_id"]) for row in rows_of(sweep_spec(words))}
    assert main(["images", "--sweep", *words, "--verify"]) == 1
    said = capsys.readouterr().out
    assert "0 of 3 images are complete" in said
    assert {line for line in said.splitlines() if "missing" in line} == {
        f"broken or missing: {image_reference(row)}"
        for row in toy_rows()
        if row["instance_id"] in ids
    }
    assert (tmp_path / "images").is_dir()


def test_without_a_folder_for_images_nothing_is_staged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "--toy", "--verify"]) == 1
    assert "--to FOLDER" in capsys.readouterr().err
