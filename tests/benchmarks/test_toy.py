"""The toy benchmark, built and graded for real with the official harness."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.benchmarks.registry import benchmark_rows
from pipeline.benchmarks.swe_bench.columns import check_rows
from pipeline.benchmarks.toy import derive
from pipeline.benchmarks.toy.checkout import CheckoutError, materialise
from pipeline.benchmarks.toy.recipes import RECIPES, load_recipes
from pipeline.benchmarks.toy.rows import DERIVED, toy_rows
from pipeline.benchmarks.toy.sources import SourceError, TextEdit, edited, repo_names, repo_source
from pipeline.spec.sweep import BenchmarkSpec

ROWS = {row["instance_id"]: row for row in toy_rows()}
RECIPE = load_recipes()


@pytest.fixture(scope="module", autouse=True)
def our_python_first():
    """Commands find this interpreter, as in a sandbox: a version manager's shim costs 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def resolved(row: dict[str, Any], testbed: Path, scratch: Path) -> bool:
    """Say what the official report says of the files in `testbed`."""
    from swebench.harness.grading import get_eval_report
    from swebench.harness.utils import make_test_spec

    spec = make_test_spec(row)
    done = subprocess.run(
        ["bash", "-c", spec.eval_script],
        env={**os.environ, "TESTBED": str(testbed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    log = scratch / "test_output.txt"
    log.write_bytes(done.stdout)
    prediction = {
        "instance_id": row["instance_id"],
        "model_name_or_path": "m",
        "model_patch": "not empty",
    }
    report = get_eval_report(spec, prediction, str(log), include_tests_status=True)
    assert report[row["instance_id"]]["patch_successfully_applied"], done.stdout.decode()
    return bool(report[row["instance_id"]]["resolved"])


def apply(edit: dict[str, str], testbed: Path) -> None:
    path = testbed / edit["path"]
    text = path.read_text()
    assert text.count(edit["old"]) == 1, edit
    path.write_text(text.replace(edit["old"], edit["new"]))


def edits_of(instance_id: str) -> list[dict[str, str]]:
    return [step["edit"] for step in RECIPE[instance_id]["steps"] if step["edit"]]


@pytest.fixture
def testbed(tmp_path, request):
    folder = tmp_path / "testbed"
    materialise(ROWS[request.node.callspec.params["instance_id"]], folder)
    return folder


each = pytest.mark.parametrize("instance_id", sorted(ROWS))


def test_the_rows_are_a_valid_dataset():
    assert len(ROWS) >= 10
    assert len({row["repo"] for row in ROWS.values()}) == 4
    check_rows(list(ROWS.values()), source="toy")
    assert benchmark_rows(BenchmarkSpec(name="toy", format="toy")) == list(ROWS.values())


def test_the_derived_files_are_what_the_sources_give():
    for path, data in derive.files().items():
        assert path.read_bytes() == data, f"run python -m pipeline.benchmarks.toy.derive ({path})"


def test_the_derived_files_travel_with_the_package():
    assert DERIVED.suffix == RECIPES.suffix == ".json"


@each
def test_a_checkout_is_clean_real_git_at_the_base(instance_id, testbed):
    assert git(testbed, "rev-parse", "HEAD").strip() == ROWS[instance_id]["base_commit"]
    assert git(testbed, "status", "--porcelain") == ""
    assert len(git(testbed, "log", "--oneline").splitlines()) >= 5
    git(testbed, "fsck", "--strict")


@each
def test_a_checkout_does_not_hold_the_answer(instance_id, testbed):
    objects = git(testbed, "cat-file", "--batch-all-objects", "--batch")
    added = [
        line[1:]
        for line in ROWS[instance_id]["test_patch"].splitlines()
        if line.startswith("+def test_")
    ]
    assert added
    assert not any(line in objects for line in added)
    assert git(testbed, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


@each
def test_the_gold_patch_resolves_and_nothing_does_not(instance_id, testbed, tmp_path):
    row = ROWS[instance_id]
    assert not resolved(row, testbed, tmp_path)
    assert git(testbed, "status", "--porcelain") == ""
    patch = tmp_path / "gold.diff"
    patch.write_text(row["patch"])
    git(testbed, "apply", "--verbose", str(patch))
    assert resolved(row, testbed, tmp_path)


@pytest.mark.parametrize("instance_id", sorted(i for i in RECIPE if RECIPE[i]["solvable"]))
def test_the_edits_of_a_recipe_resolve(instance_id, testbed, tmp_path):
    for edit in edits_of(instance_id):
        apply(edit, testbed)
    assert resolved(ROWS[instance_id], testbed, tmp_path)


@each
def test_the_wrong_edit_does_not_resolve(instance_id, testbed, tmp_path):
    apply(RECIPE[instance_id]["wrong"], testbed)
    assert not resolved(ROWS[instance_id], testbed, tmp_path)


@pytest.mark.parametrize("instance_id", sorted(i for i in RECIPE if len(edits_of(i)) > 1))
def test_the_wrong_edit_in_place_of_the_last_does_not_resolve(instance_id, testbed, tmp_path):
    for edit in [*edits_of(instance_id)[:-1], RECIPE[instance_id]["wrong"]]:
        apply(edit, testbed)
    assert not resolved(ROWS[instance_id], testbed, tmp_path)


@each
def test_a_recipes_needs_are_there_when_its_step_begins(instance_id, testbed):
    for step in RECIPE[instance_id]["steps"]:
        for need in step["needs"]:
            lines = (testbed / need["path"]).read_text().splitlines()
            assert 1 <= need["start"] <= need["end"] <= len(lines)
        if step["edit"]:
            apply(step["edit"], testbed)


@each
def test_a_recipes_commands_say_something(instance_id, testbed):
    """Each command of each step ends in time, and most print what is worth reading."""
    sizes = []
    recipe = RECIPE[instance_id]
    last = edits_of(instance_id)[-1]
    for step in recipe["steps"]:
        for command in step["explore"]:
            sizes.append(len(output_of(command, testbed)))
        if step["edit"]:
            beyond = step["edit"] == last and not recipe["solvable"]
            apply(recipe["wrong"] if beyond else step["edit"], testbed)
        for command in step["verify"]:
            sizes.append(len(output_of(command, testbed)))
    assert len(sizes) >= 18
    assert max(sizes) < 10_000
    assert sum(size > 500 for size in sizes) >= 8
    assert sum(sizes) > 20_000


def output_of(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    # A test of each repository's command line asks for a file of this name.
    missing = [x for x in done.stdout.splitlines() if "No such" in x and "no/such/file" not in x]
    assert not missing, command
    assert "SyntaxError" not in done.stdout, done.stdout
    return done.stdout


def test_some_instances_are_beyond_the_agent_and_some_are_a_matter_of_luck():
    beyond = [i for i, recipe in RECIPE.items() if not recipe["solvable"]]
    lucky = [i for i, recipe in RECIPE.items() if 0.4 <= recipe["skill"] <= 0.9]
    assert set(RECIPE) == set(ROWS)
    assert len(beyond) >= 2
    assert len(lucky) >= 4
    assert all(4 <= len(recipe["steps"]) <= 7 for recipe in RECIPE.values())


def test_some_lines_are_needed_in_several_steps():
    for instance_id, recipe in RECIPE.items():
        seen: list[tuple[str, int, int]] = []
        again = 0
        for step in recipe["steps"]:
            for need in step["needs"]:
                span = (need["path"], need["start"], need["end"])
                again += any(p == span[0] and s <= span[2] and span[1] <= e for p, s, e in seen)
                seen.append(span)
        assert again >= 1, instance_id


def test_checkouts_may_be_made_side_by_side(tmp_path):
    row = next(iter(ROWS.values()))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: materialise(row, tmp_path / str(n)), range(16)))
    heads = {git(tmp_path / str(n), "rev-parse", "HEAD").strip() for n in range(16)}
    assert heads == {row["base_commit"]}


def test_a_checkout_ignores_the_git_that_calls_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    row = next(iter(ROWS.values()))
    materialise(row, tmp_path / "here")
    assert not (tmp_path / "elsewhere").exists()


def test_a_row_that_does_not_fit_the_sources_is_refused(tmp_path):
    row = {**next(iter(ROWS.values())), "base_commit": "0" * 40}
    with pytest.raises(CheckoutError, match=r"the row says 0000.*derive"):
        materialise(row, tmp_path / "x")


def test_an_unknown_instance_is_refused(tmp_path):
    with pytest.raises(KeyError, match="toy__none-1"):
        materialise({"instance_id": "toy__none-1"}, tmp_path / "x")


@pytest.mark.parametrize("old", ["a", "z"])
def test_an_edit_must_find_its_text_once(old):
    with pytest.raises(SourceError, match=r"f has [02] times"):
        edited({"f": "a a"}, [TextEdit(path="f", old=old, new="b")])


def test_the_repositories_are_worth_reading():
    for name in repo_names():
        tree = repo_source(name).commits[-1].tree
        code = [text.count("\n") for path, text in tree.items() if path.endswith(".py")]
        assert 600 <= sum(code) <= 1500
        assert 6 <= len(code) <= 12
        assert sum(lines >= 120 for lines in code) >= 3


@pytest.mark.parametrize("name", repo_names())
def test_every_commit_of_a_repository_passes_its_own_tests(name, tmp_path):
    for number, commit in enumerate(repo_source(name).commits):
        for path, text in commit.tree.items():
            target = tmp_path / str(number) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        tests = ["python3", "-B", "runtests.py"]
        subprocess.run(tests, cwd=tmp_path / str(number), check=True, capture_output=True)


def test_the_first_line_of_a_task_tells_it_from_the_others():
    titles = {row["problem_statement"].splitlines()[0] for row in ROWS.values()}
    assert len(titles) == len(ROWS)
    assert all(titles)
