"""The templates in slurm/ are taken by a real Slurm, and those that can run here do their job."""

import re
import sys
from pathlib import Path

import pytest

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.serving.staged import MANIFEST
from tests.system.slurm_site import (
    CHECKOUT,
    Cluster,
    Outcome,
    Sweeps,
    assert_nothing_left,
    wait_for,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

TEMPLATES = sorted((CHECKOUT / "slurm").glob("*.sbatch"))
HERE = ("--partition=medium", "--mem=1G", "--cpus-per-task=2")
"""The test cluster has smaller nodes than the templates ask for, and a short default partition."""


def test_every_template_is_taken_by_sbatch(cluster: Cluster) -> None:
    assert len(TEMPLATES) >= 5
    for template in TEMPLATES:
        said = cluster.run("sbatch", "--test-only", *HERE, str(template), "a", "b", "c", "d")
        assert re.search(r"Job \d+ to start at", said), f"{template.name}: {said}"


def test_doctor_sees_a_gpu_node_from_within(cluster: Cluster, tmp_path: Path) -> None:
    asked = ("--partition=gpu", "--gres=gpu:a100:1", "doctor.sbatch")
    words = ("cluster=slurm", f"results={tmp_path}", f"cluster.scratch={tmp_path}")
    status, said = submitted(cluster, tmp_path, *asked, *words)
    assert "sbatch --test-only" in said
    assert said.splitlines()[-1].endswith(" 0 fail"), said
    assert status == 1, "this cluster's KillWait is short, and doctor warns of it"


def test_a_model_is_staged_by_a_job(cluster: Cluster, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (snapshot / name).write_text("{}")
    words = ("model", str(snapshot), "--to", str(tmp_path / "model"))
    status, said = submitted(cluster, tmp_path, "stage.sbatch", *words)
    assert status == 0, said
    assert f"{tmp_path}/model: 3 files" in said
    assert (tmp_path / "model" / MANIFEST).exists()


def test_workers_submitted_by_hand_do_a_sweep_that_was_only_locked(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = sweeps(tmp_path, grade_here=True)
    assert sweep.launch("submit=false") == 0
    assert cluster.queue() == []
    array = ("--array=0-1", "worker.sbatch")
    status, said = submitted(cluster, tmp_path, *array, str(sweep.layout.root), "sim")
    assert status == 0, said
    assert len(sweep.journaled()) == len(undisturbed)
    assert sweep.finish() == undisturbed
    assert sum("rollout" in name for name in sweep.attempts()) == 2
    assert_nothing_left(sweep)


def submitted(cluster: Cluster, folder: Path, *words: str) -> tuple[int, str]:
    """Run a template with its words, options first; return its exit status and what it printed."""
    at = next(n for n, word in enumerate(words) if word.endswith(".sbatch"))
    options, template, arguments = words[:at], CHECKOUT / "slurm" / words[at], words[at + 1 :]
    log = folder / "printed.log"
    done = run_command(
        ["sbatch", "--parsable", f"--output={log}", *HERE, *options, str(template), *arguments],
        timeout_s=60,
        env={**environment(), "PLANPRUNE_PYTHON": sys.executable},
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.text
    job = done.text.strip()
    # Not by --wait, which looks ever more seldom.
    wait_for(lambda: not cluster.queue(f"--jobs={job}"), "the job has ended")
    codes = re.findall(r"ExitCode=(\d+):", cluster.run("scontrol", "show", "job", job))
    return max(map(int, codes)), log.read_text()
