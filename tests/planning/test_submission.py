"""What launch hands to sbatch: what the configuration says, whole, once, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import launch
from pipeline.host.process import run_command
from pipeline.planning.config import sweep_spec
from pipeline.planning.slurm_site import JobRequest, pool_gpus, slurm_parameters
from tests.planning.slurm_standins import StandIns, stand_ins
from tests.words import words_of

SMALL = (
    "+sweep=demo",
    "cluster=slurm",
    "seeds=[0]",
    "instances.sample=2",
    "cluster.rollout.n_tasks=2",
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    found = stand_ins(tmp_path / "slurm")
    monkeypatch.setenv("PATH", found.path)
    return found


def launched(results: Path, *words: str) -> int:
    return launch.main(words_of(*SMALL, f"results={results}", *words))


def test_options_that_are_null_or_false_are_left_out_and_submitits_own_label_is(
    slurm: StandIns, tmp_path: Path
) -> None:
    extra = "cluster.rollout.extra={wckey: null, requeue: false, exclusive: true, nice: 5}"
    assert launched(tmp_path / "sweep", extra) == 0
    rollout, grading = sorted(slurm.options(), key=lambda options: "--nice=5" not in options)
    assert {"--exclusive", "--nice=5"} <= set(rollout)
    assert "--requeue" not in rollout
    assert "--requeue" in grading
    assert not [option for option in (*rollout, *grading) if "wckey" in option]


def test_a_pools_keys_reach_sbatch_by_its_own_names(slurm: StandIns, tmp_path: Path) -> None:
    said = {"partition": "gpu", "qos": "long", "constraint": "a100&nvme", "reservation": "class"}
    said |= {"nodelist": "n[1-4]", "exclude": "n3", "licenses": "matlab:1"}
    words = [f'cluster.rollout.{key}="{value}"' for key, value in said.items()]
    assert launched(tmp_path / "sweep", "grade=false", "cluster.account=acc", *words) == 0
    (options,) = slurm.options()
    for key, value in said.items():
        assert {f"--{key}={value}", f"--{key}='{value}'"} & set(options), key
    assert "--account=acc" in options


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("{partition: gpu}", "cluster.rollout.partition"),
        ("{part: gpu}", "cluster.rollout.partition"),
        ("{gres: null}", "cluster.rollout.gres"),
        ("{cpus_per_task: 3}", "cluster.rollout.cpus"),
        ("{time: 5}", "cluster.rollout.time_min"),
        ("{array: 0-3}", "cluster.rollout.n_tasks"),
        ("{account: x}", "cluster.account"),
        ("{comment: [a, b]}", "needs a text"),
        ('{comment: "a\nb"}', "line end"),
    ],
)
def test_an_extra_option_that_has_a_key_of_its_own_is_refused_before_anything_is_written(
    slurm: StandIns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    extra: str,
    says: str,
) -> None:
    assert launched(tmp_path / "sweep", f"cluster.rollout.extra={extra}") == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()
    assert slurm.scripts() == []


@pytest.mark.parametrize("name", ["50% off", "a\\b", "a\nb", "%A"])
def test_a_results_folder_that_slurm_would_read_as_a_pattern_is_refused(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    quoted = name.replace("\\", "\\\\")
    assert launch.main([*SMALL, f'results="{tmp_path}/{quoted}"']) == 2
    assert "name another folder" in capsys.readouterr().err
    assert not (tmp_path / name).exists()
    assert slurm.scripts() == []


def test_what_the_shell_has_set_for_sbatch_neither_reaches_it_nor_the_jobs(
    slurm: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("SBATCH_PARTITION", "SBATCH_ARRAY_INX", "SRUN_CPUS_PER_TASK", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SALLOC_ACCOUNT", "mine")
    monkeypatch.setenv("SLURM_CONF", "/etc/somewhere")
    assert launched(tmp_path / "sweep", "grade=false") == 0
    assert slurm.environments() == [["SLURM_CONF=/etc/somewhere"]]
    assert slurm.environments("tested") == [["SLURM_CONF=/etc/somewhere"]]
    printed = capsys.readouterr().out
    assert "not passed on to Slurm: SBATCH_PARTITION=7" in printed
    assert "not passed on to Slurm: SALLOC_ACCOUNT=mine" in printed


def test_what_is_asked_for_of_the_shell_is_taken_and_printed(
    slurm: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "night")
    monkeypatch.setenv("SBATCH_QOS", "low")
    assert (
        launched(tmp_path / "sweep", "grade=false", "cluster.keep_variables=[SBATCH_PARTITION]")
        == 0
    )
    assert slurm.environments() == [["SBATCH_PARTITION=night"]]
    assert "overriding the configuration: SBATCH_PARTITION=night" in capsys.readouterr().out


def test_a_filter_of_the_shell_hides_no_job_from_the_next_launch(
    slurm: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = slurm.root / "bin" / "squeue"
    squeue.write_text(squeue.read_text().replace("[ -f", '[ -z "$SQUEUE_STATES" ] && [ -f'))
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    assert launched(tmp_path / "sweep") == 0
    assert launched(tmp_path / "sweep") == 2
    assert len(slurm.scripts()) == 2


def test_the_folder_of_the_logs_is_there_before_sbatch_is_asked(
    slurm: StandIns, tmp_path: Path
) -> None:
    assert launched(tmp_path / "sweep") == 0
    assert slurm.log_folders_there() == len(slurm.scripts()) == 2


def test_two_launches_at_once_submit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = stand_ins(tmp_path / "slurm", sbatch_s=0.5)
    monkeypatch.setenv("PATH", slurm.path)
    results = tmp_path / "sweep"
    assert launched(results, "submit=false") == 0
    argv = [sys.executable, "-m", "pipeline.launch", *SMALL, f"results={results}"]
    both = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    assert any("nothing was submitted" in err for _, err in said)
    assert len(slurm.scripts()) == 2, "one array of rollouts, one of gradings"


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("module load Nothing-of-the-kind 2>/dev/null", True),
        ("cd /nowhere-at-all && export A=1", True),
        ("false || true", False),
        ("export A='1 2'", False),
        ("  ", False),
        ("# only a remark", False),
        ("echo 'it''s' # and why", False),
    ],
)
def test_a_setup_line_that_fails_ends_the_job_with_its_text(
    tmp_path: Path, line: str, fails: bool
) -> None:
    words = ["+sweep=demo", "cluster=slurm", f"results={tmp_path}"]
    spec = sweep_spec(words)
    object.__setattr__(spec.cluster, "setup", (line,))
    told = slurm_parameters(spec, JobRequest(role="rollout", model="m", n_tasks=1), of_tasks=1)
    script = tmp_path / "job.sh"
    script.write_text("\n".join(["#!/bin/bash", *told["setup"], "echo the worker starts"]))
    done = run_command(["bash", str(script)], timeout_s=20)
    assert ("the worker starts" in done.text) is not fails
    assert done.returncode == (1 if fails else 0)
    assert (f"this line of cluster.setup failed: {line}" in done.text) is fails


@pytest.mark.parametrize(
    ("pool", "n_gpus"),
    [
        ("{gres: 'gpu:a100:2'}", 2),
        ("{extra: {gpus-per-node: 2}}", 2),
        ("{extra: {gpus_per_node: 'a100:4'}}", 4),
        ("{extra: {gpus: a100}}", 1),
        ("{extra: {gpus-per-node: null}}", 0),
    ],
)
def test_gpus_count_however_they_are_asked_for(tmp_path: Path, pool: str, n_gpus: int) -> None:
    spec = sweep_spec(
        ["+sweep=demo", "cluster=slurm", f"results={tmp_path}", f"cluster.rollout={pool}"]
    )
    assert pool_gpus(spec.cluster.rollout) == n_gpus
