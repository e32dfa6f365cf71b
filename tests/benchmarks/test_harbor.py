"""Harbor's task folders become rows; what a row cannot say is refused by name; rewards are read."""

import json
from pathlib import Path

import pytest

from pipeline import stage
from pipeline.benchmarks.harbor.format import FORMAT, rewards_in, verdict
from pipeline.benchmarks.harbor.tasks import MODEL_PATCH, archive, files_in, task_row
from pipeline.benchmarks.registry import benchmark_rows
from pipeline.benchmarks.rows import DatasetError, read_rows
from pipeline.protocols import CommandResult
from pipeline.records.failure import GradeClass
from pipeline.spec.sweep import BenchmarkSpec
from tests.benchmarks.harbor_tasks import BUGS, FILES, IMAGE, write_tasks

ENDED = CommandResult(output="", returncode=0)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_tasks(tmp_path / "tasks")


def change(task: Path, **texts: str) -> Path:
    """Replace texts of `task.toml`, each by name of what stands for it."""
    toml = task / "task.toml"
    text = toml.read_text()
    for old, new in texts.items():
        assert old in text
        text = text.replace(old, new)
    toml.write_text(text)
    return task


def test_a_task_folder_says_all_that_a_row_needs(tasks: Path):
    row = task_row(tasks / "toy__ledger-2")
    named = ("repo", "image", "workdir", "wall_limit_s", "grade_timeout_s", "patch_path")
    assert [row[name] for name in named] == [
        "toy/ledger",
        IMAGE,
        "/srv/toy__ledger-2",
        600.0,
        120.0,
        MODEL_PATCH,
    ]
    assert (row["network_rollout"], row["network_grade"]) == (False, False)
    assert "canary" not in row["problem_statement"]


def test_a_task_without_a_time_limit_leaves_it_to_the_sweep(tasks: Path):
    assert task_row(change(tasks / FILES, **{"timeout_sec = 600.0": ""}))["wall_limit_s"] is None


def test_folders_are_staged_as_one_file_that_launch_reads(tasks: Path, tmp_path: Path):
    file = tmp_path / "data" / "tasks.parquet"
    assert stage.main(["dataset", str(tasks), "--to", str(file)]) == 0
    spec = BenchmarkSpec(name="harbor", format="harbor", dataset=str(file), workdir="/app")
    rows = benchmark_rows(spec)
    assert [row["instance_id"] for row in rows] == sorted([*BUGS, FILES])
    assert rows[0]["workdir"] == "/srv/files"
    assert rows[0]["tests_sha256"] == task_row(tasks / FILES)["tests_sha256"]


def test_an_archive_is_the_same_for_the_same_files_and_keeps_what_may_be_run(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "run.sh").write_text("true\n")
        (tmp_path / name / "deep" / "run.sh").chmod(0o755)
        (tmp_path / name / "data").write_bytes(b"\x00\xff")
    assert archive(tmp_path / "a") == archive(tmp_path / "b")
    assert list(files_in(archive(tmp_path / "a"))) == [
        ("data", b"\x00\xff", False),
        ("deep/run.sh", b"true\n", True),
    ]
    (tmp_path / "a" / "link").symlink_to("data")
    with pytest.raises(DatasetError, match="only files and folders"):
        archive(tmp_path / "a")


def test_another_test_is_another_version_of_the_harness(tasks: Path):
    before = FORMAT.grader.version(task_row(tasks / FILES))
    (tasks / FILES / "tests" / "more.txt").write_text("1")
    after = FORMAT.grader.version(task_row(tasks / FILES))
    assert before != after
    assert before.partition(":")[0] == after.partition(":")[0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[environment]", "[[steps]]\nname = 'one'\n[environment]", "several steps"),
        ("[environment]", "[environment]\ngpus = 1", "a GPU"),
        ("[environment]", "[environment]\nos = 'Windows'", "Windows"),
        ("[environment]", "[environment]\nnetwork_mode = 'allowlist'", "a list of hosts"),
        ("[environment]", "[environment]\nenv = {A = '${HOME}'}", "variables of the machine"),
        ("[environment]", "[environment]\nskills_dir = '/s'", "skills"),
        (
            "[environment]",
            "[environment]\nhealthcheck = {command = 'true'}",
            "healthcheck",
        ),
        ("[agent]", "[agent]\nuser = 'me'", "another user than root"),
        ("timeout_sec = 120.0", "environment_mode = 'separate'", "given other files than"),
        (
            "timeout_sec = 120.0",
            "environment = {docker_image = 'other'}",
            "a verifier with an image of its own",
        ),
    ],
)
def test_what_a_task_needs_and_is_not_done_here_is_refused_by_name(
    tasks: Path, old: str, new: str, reason: str
):
    with pytest.raises(DatasetError, match=f"it needs .*{reason}"):
        task_row(change(tasks / FILES, **{old: new}))


@pytest.mark.parametrize("part", ["environment", "tests"])
def test_tasks_of_several_containers_are_refused(tasks: Path, part: str):
    (tasks / FILES / part).mkdir(exist_ok=True)
    (tasks / FILES / part / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(DatasetError, match="several containers"):
        task_row(tasks / FILES)


@pytest.mark.parametrize(
    ("dockerfile", "is_refused"),
    [
        (f"# why\nFROM {IMAGE}\nCOPY a /tests/a\nRUN chmod +x /tests/a\n", False),
        (f"FROM {IMAGE}\nRUN pip install pytest\n", True),
        ("FROM python:3.12\nCOPY . /tests/\n", True),
    ],
)
def test_a_verifiers_image_may_only_be_the_tasks_with_files_in_it(
    tasks: Path, dockerfile: str, is_refused: bool
):
    (tasks / "toy__ledger-2" / "tests" / "Dockerfile").write_text(dockerfile)
    if is_refused:
        with pytest.raises(DatasetError, match="an image of its own"):
            task_row(tasks / "toy__ledger-2")
    else:
        assert task_row(tasks / "toy__ledger-2")


def test_staging_counts_and_names_the_refused_and_goes_on_without_them_when_told(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    change(tasks / FILES, **{"[environment]": "[environment]\ngpus = 1"})
    file = tmp_path / "tasks.parquet"
    words = ["dataset", str(tasks), "--to", str(file)]
    assert stage.main(words) == 1
    refused = capsys.readouterr().err
    assert "1 of 4 tasks cannot be run" in refused
    assert "count-lines: it needs a GPU" in refused
    assert stage.main([*words, "--drop-ungradable"]) == 0
    assert len(read_rows(file)) == 3
    dropped = json.loads((tmp_path / "tasks.parquet.manifest.json").read_text())["dropped"]
    assert list(dropped) == [FILES]


def test_a_task_without_an_image_is_named_after_its_folder(tasks: Path):
    """What its Dockerfile builds is staged under that name, and says the working directory."""
    task = change(tasks / FILES, **{f'docker_image = "{IMAGE}"\nworkdir = "/srv/files"\n': ""})
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text("FROM x\nWORKDIR /one\n WORKDIR /two\n")
    row = task_row(task)
    assert (row["image"], row["workdir"]) == (f"harbor/{FILES}:latest", "/two")


@pytest.mark.parametrize(
    ("name", "text", "rewards"),
    [
        ("reward.txt", b"1\n", {"reward": 1.0}),
        ("reward.json", b'{"reward": 0.5, "p2p": 1}', {"reward": 0.5, "p2p": 1.0}),
        ("reward.json", b"0.25", {"reward": 0.25}),
    ],
)
def test_rewards_are_read_by_name(name: str, text: bytes, rewards: dict[str, float]):
    assert rewards_in(text, name) == rewards


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reward.txt", b""),
        ("reward.txt", b"nan"),
        ("reward.txt", b"one"),
        ("reward.json", b"{}"),
        ("reward.json", b'{"reward": NaN}'),
        ("reward.json", b'{"reward": 1e999}'),
        ("reward.json", b'{"reward": null}'),
        ("reward.json", b"[1]"),
        ("reward.json", b"\xff"),
    ],
)
def test_what_is_no_reward_is_said_as_it_is(name: str, text: bytes):
    assert "left no number" in str(rewards_in(text, name))


@pytest.mark.parametrize(
    ("rewards", "grade_class", "score"),
    [
        ({"reward": 1.0}, GradeClass.RESOLVED, 1.0),
        ({"reward": 1.5}, GradeClass.RESOLVED, 1.0),
        ({"reward": 0.99, "other": 1.0}, GradeClass.UNRESOLVED, 0.99),
        ({"accuracy": 1.0}, GradeClass.RESOLVED, 1.0),
        ({"reward": -1.0}, GradeClass.GRADE_INFRA, None),
        ({"a": 1.0, "b": 1.0}, GradeClass.GRADE_INFRA, None),
        ("ended without a reward", GradeClass.GRADE_INFRA, None),
        ({"reward": 0.0, "apply_failed": 1.0}, GradeClass.PATCH_FAILED, None),
    ],
)
def test_a_reward_of_1_is_solved_and_a_negative_or_missing_one_is_our_failure(
    rewards: dict[str, float] | str, grade_class: GradeClass, score: float | None
):
    grade = verdict("patch", rewards, ENDED)
    assert (grade.grade_class, grade.score) == (grade_class, score)


def test_a_task_without_a_solution_has_no_gold_and_starts_nothing():
    assert FORMAT.grader.gold({"solution": ""}, lambda: pytest.fail("a sandbox was started")) == ""
