"""A dataset from outside: one split of gradable rows, or a refusal that says which and why."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import grade, launch, stage
from pipeline.benchmarks.rows import DatasetError
from pipeline.benchmarks.staging import stage_dataset
from pipeline.benchmarks.swe_bench.columns import EVAL_TYPES, PARSERS, load_rows


def row(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "repo": "case/counter",
        "instance_id": f"case__counter-{number}",
        "base_commit": "a" * 40,
        "patch": "",
        "test_patch": "",
        "problem_statement": "The counter is off by one.",
        "version": "1.0",
        "FAIL_TO_PASS": '["tests/test_a.py::test_two"]',
        "PASS_TO_PASS": "[]",
        "image": "held/c:1",
        "eval_script": "#!/bin/bash\nexit 0\n",
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        **changes,
    }


def lines(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


UNGRADABLE = {
    "no test": (row(FAIL_TO_PASS="[]"), "it has no test"),
    "no test in a list": (row(FAIL_TO_PASS=[]), "it has no test"),
    "unknown parser": (
        row(log_parser="parse_log_pytestt"),
        "no log parser 'parse_log_pytestt'; the nearest are parse_log_pytest",
    ),
    "unknown eval_type": (row(eval_type="fail_onlyy"), "eval_type is 'fail_onlyy'"),
}


@pytest.mark.parametrize(("bad", "said"), UNGRADABLE.values(), ids=UNGRADABLE)
def test_a_row_that_no_patch_can_be_graded_for_is_refused_when_it_is_loaded(
    tmp_path: Path, bad: dict[str, Any], said: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        load_rows(lines(tmp_path, bad, row(2)))
    assert "1 of 2 rows cannot be graded" in str(caught.value)
    assert "row 1 (case__counter-1)" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(("bad", "said"), UNGRADABLE.values(), ids=UNGRADABLE)
def test_no_door_takes_such_a_row_or_shows_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: dict[str, Any], said: str
) -> None:
    path = lines(tmp_path, bad)
    log, patch = tmp_path / "log", tmp_path / "patch"
    log.write_text(">>>>> Start Test Output\n>>>>> End Test Output\n")
    patch.write_text("diff --git a/x b/x\n")
    words = ["--instance", "case__counter-1", "--patch", str(patch), "--dataset", str(path)]
    assert grade.main(["--from-log", str(log), *words]) == 2
    assert said in capsys.readouterr().err
    sweep = ["+sweep=demo", "benchmark=verified", f"dataset={path}", "dry_run=true"]
    assert launch.main([*sweep, f"results={tmp_path / 'results'}"]) == 2
    assert said in "".join(capsys.readouterr())
    assert stage.main(["dataset", str(path), "--to", str(tmp_path / "data")]) != 0
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_log_with_odd_bytes_is_graded_as_in_a_sweep_and_other_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    log, patch = tmp_path / "log", tmp_path / "patch"
    inside = "caf\xe9\nPASSED tests/test_a.py::test_two"
    text = f">>>>> Start Test Output\n{inside}\n>>>>> End Test Output\n"
    log.write_bytes(text.encode(encoding))
    patch.write_text("diff --git a/x b/x\n")
    words = ["--patch", str(patch), "--dataset", str(lines(tmp_path, row()))]
    status = grade.main(["--from-log", str(log), "--instance", "case__counter-1", *words])
    shown = capsys.readouterr()
    if encoding == "utf-16":
        assert (status, "is not a test log" in shown.err) == (2, True)
    else:
        assert (status, "are replaced" in shown.err) == (0, True)
        assert "case__counter-1: resolved" in shown.out


def test_the_known_parsers_and_kinds_of_evaluation_are_the_harnesss() -> None:
    from swebench.harness.constants import EvalType
    from swebench.harness.log_parsers import PARSER_REGISTRY

    assert frozenset(PARSER_REGISTRY) == PARSERS
    assert {kind.value for kind in EvalType} == set(EVAL_TYPES)


def test_a_row_with_lists_and_without_a_version_is_a_row_like_others(tmp_path: Path) -> None:
    plain = row(version=None, FAIL_TO_PASS=["t::a"], PASS_TO_PASS=["t::b"])
    assert load_rows(lines(tmp_path, plain)) == [plain]


def test_ungradable_rows_are_left_out_where_that_is_asked_and_the_manifest_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lines(tmp_path, row(1, FAIL_TO_PASS="[]"), row(2), row(3, log_parser="none"))
    words = ["dataset", str(path), "--to", str(tmp_path / "data"), "--drop-ungradable"]
    assert stage.main(words) == 0
    assert "2 rows" in capsys.readouterr().out
    kept = load_rows(tmp_path / "data" / "rows.parquet")
    assert [each["instance_id"] for each in kept] == ["case__counter-2"]
    manifest = json.loads((tmp_path / "data" / "rows.parquet.manifest.json").read_text())
    assert set(manifest["dropped"]) == {"case__counter-1", "case__counter-3"}


# --- splits --------------------------------------------------------------------------------------
def table(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in numbers])


def hub(folder: Path) -> Path:
    """As the hub serves it: two splits with shards in one folder."""
    (folder / "data").mkdir(parents=True)
    pq.write_table(table(1, 2), folder / "data" / "dev-00000-of-00001.parquet")
    pq.write_table(table(3), folder / "data" / "test-00000-of-00002.parquet")
    pq.write_table(table(4, 5), folder / "data" / "test-00001-of-00002.parquet")
    return folder


def saved(folder: Path) -> Path:
    """As the `datasets` library saves it."""
    for split, numbers in {"dev": (1, 2), "test": (3, 4, 5)}.items():
        (folder / split).mkdir(parents=True)
        with pa.OSFile(str(folder / split / "data-00000-of-00001.arrow"), "wb") as sink:
            rows = table(*numbers)
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
    return folder


@pytest.mark.parametrize("layout", [hub, saved])
def test_splits_are_never_mixed(tmp_path: Path, layout: Any) -> None:
    folder = layout(tmp_path / "lite_like")
    with pytest.raises(DatasetError, match=r"dev \(2 rows\), test \(3 rows\); name one"):
        stage_dataset(str(folder), tmp_path / "to")
    staged = stage_dataset(str(folder), tmp_path / "to", split="test")
    assert (staged.file, staged.split, staged.n_rows) == ("lite_like-test.parquet", "test", 3)
    ids = [each["instance_id"] for each in load_rows(tmp_path / "to" / staged.file)]
    assert ids == ["case__counter-3", "case__counter-4", "case__counter-5"]
    with pytest.raises(DatasetError, match=r"no split 'full'; it has dev"):
        stage_dataset(str(folder), tmp_path / "to", split="full")


def test_a_single_split_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    pq.write_table(table(1, 2), tmp_path / "one" / "test-00000-of-00001.parquet")
    assert stage_dataset(str(tmp_path / "one"), tmp_path / "to").n_rows == 2


def test_shards_without_a_name_are_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    pq.write_table(table(1), tmp_path / "one" / "data-00000-of-00002.parquet")
    pq.write_table(table(2), tmp_path / "one" / "data-00001-of-00002.parquet")
    assert stage_dataset(str(tmp_path / "one"), tmp_path / "to").n_rows == 2
