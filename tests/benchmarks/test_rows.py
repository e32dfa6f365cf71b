"""Dataset files, selections and samples."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.benchmarks.registry import benchmark_rows
from pipeline.benchmarks.rows import (
    DatasetError,
    image_reference,
    row_sha256,
    select_rows,
    stratified,
)
from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.benchmarks.swe_bench.format import FORMAT as SWE_BENCH
from pipeline.spec.sweep import BenchmarkSpec

SHARED = Path(__file__).parents[3] / "shared" / "data"
VERIFIED = SHARED / "swebench_verified_v5.parquet"


def a_row(number: int = 1, repo: str = "a/b", **changes: Any) -> dict[str, Any]:
    row = {
        "repo": repo,
        "instance_id": f"{repo.replace('/', '__')}-{number}",
        "base_commit": "0" * 40,
        "patch": "",
        "test_patch": "",
        "problem_statement": "it breaks",
        "version": "1.0",
        "FAIL_TO_PASS": '["t::a"]',
        "PASS_TO_PASS": "[]",
        "eval_script": "#!/bin/bash\n",
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "image": "Swebench/Img:latest",
    }
    return {**row, **changes}


def written(folder: Path, rows: list[dict[str, Any]], kind: str = "jsonl") -> Path:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_the_same_rows_come_from_every_kind_of_file(tmp_path, kind):
    rows = [a_row(1), a_row(2)]
    assert load_rows(written(tmp_path, rows, kind)) == rows


def test_a_line_separator_inside_a_json_text_ends_no_line(tmp_path):
    rows = [a_row(1, problem_statement="one\u2028two\x85three")]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows[0], ensure_ascii=False), encoding="utf-8")
    assert load_rows(path) == rows


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"no dataset at .*gone\.jsonl.*dataset=PATH"):
        load_rows(tmp_path / "gone.jsonl")


def test_an_unknown_kind_of_file_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b")
    with pytest.raises(DatasetError, match=r"ends in \.json, \.jsonl, \.parquet"):
        load_rows(tmp_path / "rows.csv")


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_an_empty_dataset_is_refused(tmp_path, kind):
    with pytest.raises(DatasetError, match="has no rows"):
        load_rows(written(tmp_path, [], kind))


def test_bad_json_is_found_by_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(a_row(1)) + "\n\n{oops\n")
    with pytest.raises(DatasetError, match=r"line 3 is no JSON"):
        load_rows(path)


@pytest.mark.parametrize("content", ["{", '{"rows": []}', "[1]", "\x80"])
def test_a_json_file_must_hold_a_list_of_objects(tmp_path, content):
    path = tmp_path / "rows.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DatasetError, match=r"rows\.json"):
        load_rows(path)


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DatasetError, match=r"rows\.parquet is no Parquet file"):
        load_rows(path)


def test_classic_rows_are_told_what_they_lack_and_where_to_get_it(tmp_path):
    classic = a_row(1)
    for column in ("image", "eval_script", "log_parser", "eval_type"):
        del classic[column]
    with pytest.raises(DatasetError) as caught:
        load_rows(written(tmp_path, [a_row(2), classic]))
    message = str(caught.value)
    assert "row 2 (a__b-1)" in message
    assert "missing image, eval_script, log_parser, eval_type" in message
    assert "python -m pipeline.stage dataset" in message


def test_something_else_than_a_dataset_is_told_so(tmp_path):
    with pytest.raises(DatasetError, match=r"missing repo, instance_id.*SWE-bench"):
        load_rows(written(tmp_path, [{"question": "?"}]))


@pytest.mark.parametrize("tests", ['["a"', '"a"', "[1]"])
def test_test_lists_must_be_lists_of_names(tmp_path, tests):
    with pytest.raises(DatasetError, match="FAIL_TO_PASS"):
        load_rows(written(tmp_path, [a_row(FAIL_TO_PASS=tests)]))


def test_an_instance_may_occur_once(tmp_path):
    with pytest.raises(DatasetError, match=r"more than once: a__b-1$"):
        load_rows(written(tmp_path, [a_row(1), a_row(2), a_row(1)]))


def test_selected_rows_keep_the_order_of_the_dataset():
    rows = [a_row(number) for number in range(5)]
    chosen = select_rows(rows, instance_ids=["a__b-3", "a__b-1", "a__b-3"])
    assert [row["instance_id"] for row in chosen] == ["a__b-1", "a__b-3"]
    assert select_rows(rows, limit=2) == rows[:2]
    assert select_rows(rows, instance_ids=[]) == rows


def test_unknown_instances_get_the_nearest_ones_named():
    rows = [a_row(11, "django/django"), a_row(12, "sympy/sympy")]
    with pytest.raises(DatasetError) as caught:
        select_rows(rows, instance_ids=["django__djnago-11", "qqq"])
    first, second = str(caught.value).splitlines()
    assert "'django__djnago-11'" in first
    assert "nearest are django__django-11" in first
    assert "'qqq'" in second


def test_a_limit_below_one_is_refused():
    with pytest.raises(DatasetError, match="limit of 0"):
        select_rows([a_row()], limit=0)


sizes = st.dictionaries(
    st.sampled_from(["a/a", "b/b", "c/c", "d/d"]), st.integers(1, 40), min_size=1
)


def rows_of(counts: dict[str, int]) -> list[dict[str, Any]]:
    return [a_row(number, repo) for repo, count in counts.items() for number in range(count)]


@given(counts=sizes, seed=st.integers(0, 5), data=st.data())
def test_a_sample_has_its_size_and_every_repository_its_share(counts, seed, data):
    rows = rows_of(counts)
    n = data.draw(st.integers(1, len(rows)))
    sample = stratified(rows, n, seed)
    assert len(sample) == n
    assert sample == [row for row in rows if row in sample]
    drawn = Counter(row["repo"] for row in sample)
    for repo, count in counts.items():
        # A repository that is owed less than one row may still get one, at the others' cost.
        assert drawn[repo] <= max(1, n * count / len(rows) + 1)
        assert n < len(counts) or drawn[repo] >= 1


@given(counts=sizes, data=st.data())
def test_a_sample_does_not_depend_on_the_order_of_the_file(counts, data):
    rows = rows_of(counts)
    n = data.draw(st.integers(1, len(rows)))
    shuffled = data.draw(st.permutations(rows))
    ids = {row["instance_id"] for row in stratified(rows, n, 3)}
    assert ids == {row["instance_id"] for row in stratified(shuffled, n, 3)}


def test_another_seed_draws_another_sample():
    rows = rows_of({"a/a": 40})
    assert stratified(rows, 10, 0) != stratified(rows, 10, 1)


@pytest.mark.parametrize("n", [0, 6])
def test_a_sample_of_impossible_size_is_refused(n):
    with pytest.raises(DatasetError, match=f"cannot draw {n} of 5"):
        stratified(rows_of({"a/a": 5}), n, 0)


def test_a_rows_hash_depends_on_its_content_alone():
    row = a_row()
    assert row_sha256(row) == row_sha256(dict(reversed(row.items())))
    assert row_sha256(row) != row_sha256(a_row(version="1.1"))
    assert len(row_sha256(row)) == 64


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        (
            "Swebench/Sweb.eval.x86_64.A_1776_b-1:latest",
            "docker.io/swebench/sweb.eval.x86_64.a_1776_b-1:latest",
        ),
        ("ubuntu:22.04", "docker.io/ubuntu:22.04"),
        ("registry.example.org/x/y:1", "registry.example.org/x/y:1"),
        ("localhost/x:1", "localhost/x:1"),
        ("node:5000/x", "node:5000/x"),
    ],
)
def test_images_get_a_registry_and_lower_case(image, reference):
    assert image_reference({"image": image}) == reference


def test_a_benchmark_without_its_dataset_says_how_to_get_it(tmp_path):
    with pytest.raises(DatasetError, match=r"'verified'.*pipeline\.stage dataset.*dataset=PATH"):
        benchmark_rows(BenchmarkSpec(name="verified", dataset=str(tmp_path / "gone.parquet")))
    with pytest.raises(DatasetError, match=r"no dataset file is named for benchmark 'lite'"):
        benchmark_rows(BenchmarkSpec(name="lite"))


def test_a_benchmark_may_be_any_file_of_rows(tmp_path):
    own = BenchmarkSpec(name="mine", dataset=str(written(tmp_path, [a_row()])))
    assert benchmark_rows(own) == [a_row()]


def test_another_working_directory_is_part_of_the_row_and_of_its_digest(tmp_path):
    dataset = str(written(tmp_path, [a_row(1), a_row(2, workdir="/srv/two")]))
    usual = benchmark_rows(BenchmarkSpec(name="mine", dataset=dataset))
    moved = benchmark_rows(BenchmarkSpec(name="mine", dataset=dataset, workdir="/app"))
    assert [row.get("workdir") for row in usual] == [None, "/srv/two"]
    assert [row["workdir"] for row in moved] == ["/app", "/srv/two"]
    assert row_sha256(usual[0]) != row_sha256(moved[0])
    assert row_sha256(usual[1]) == row_sha256(moved[1])


@pytest.mark.parametrize("folder", ["app", "/", "/tmp/x", "/a b", "/a/"])
def test_a_working_directory_that_no_sandbox_can_have_is_refused(tmp_path, folder):
    dataset = str(written(tmp_path, [a_row()]))
    with pytest.raises(DatasetError, match="cannot hold a repository"):
        benchmark_rows(BenchmarkSpec(name="mine", dataset=dataset, workdir=folder))


def test_an_unknown_format_is_told_which_there_are(tmp_path):
    dataset = str(written(tmp_path, [a_row()]))
    with pytest.raises(
        DatasetError, match=r"no format 'other' for mine; there are .*swe_bench.*toy"
    ):
        benchmark_rows(BenchmarkSpec(name="mine", format="other", dataset=dataset))


@pytest.fixture(scope="module")
def verified() -> list[dict[str, Any]]:
    if not VERIFIED.is_file():
        pytest.skip("needs ../shared/data/swebench_verified_v5.parquet")
    return load_rows(VERIFIED)


def test_all_of_verified_is_read(verified):
    assert len(verified) == 500
    assert len({row_sha256(row) for row in verified}) == 500
    for row in verified:
        name = row["instance_id"].replace("__", "_1776_").lower()
        assert image_reference(row) == f"docker.io/swebench/sweb.eval.x86_64.{name}:latest"


def test_samples_of_verified_have_every_repository(verified):
    repos = {row["repo"] for row in verified}
    assert len(repos) == 12
    for n in (25, 100):
        sample = stratified(verified, n, 0)
        assert len(sample) == n
        assert {row["repo"] for row in sample} == repos


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"instance_id": 7}, "instance_id must be text"),
        ({"repo": ["a"]}, "repo must be text"),
        ({"eval_script": {"a": 1}}, "eval_script must be text"),
        ({"instance_id": " "}, "instance_id must not be empty"),
        ({"problem_statement": ""}, "problem_statement must not be empty"),
        ({"instance_id": "../../etc/passwd"}, "it names files"),
        ({"created_at": float("nan")}, "a value that JSON cannot"),
    ],
)
def test_a_row_that_cannot_be_run_is_refused_before_anything_is(tmp_path, changes, told):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([a_row(1), {**a_row(2), **changes}]))
    with pytest.raises(DatasetError, match=f"row 2.*{told}"):
        load_rows(path)


def test_rows_of_swe_bench_live_are_refused_with_the_rule_that_is_not_had():
    row = {"instance_id": "a__b-1", "test_cmds": ["pytest -rA"], "log_parser": "pytest"}
    with pytest.raises(DatasetError, match=r"row 1 \(a__b-1\): .*SWE-bench-Live, whose rule"):
        SWE_BENCH.check([row], source="live.parquet")
