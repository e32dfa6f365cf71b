"""With slurmdbd: accounts and limits are asked of the site, and a sweep keeps within them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.host.slurm import ending
from pipeline.planning.config import sweep_spec
from pipeline.planning.doctor import Level
from pipeline.planning.doctor_slurm import slurm_checks
from pipeline.records.layout import Layout
from tests.system.slurm_site import REMEDY, Cluster, Sweep, assert_nothing_left

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MAX_SUBMIT = 2


@pytest.fixture(scope="module")
def accounting(cluster: Cluster, require: Callable[..., None]) -> Iterator[Cluster]:
    """Return a cluster with a database, in place of the session's; root has one small account."""
    found = shutil.which("slurmdbd") and shutil.which("mariadbd")
    require("slurmdbd", found, remedy=f"{REMEDY} --accounting")
    cluster.down()
    # Not below pytest's folder, which the database's own user may not enter.
    root = Path(tempfile.mkdtemp(prefix="planprune-accounting-"))
    root.chmod(0o755)
    kept = Cluster(root, accounting=True)
    before, os.environ["SLURM_CONF"] = os.environ["SLURM_CONF"], str(kept.conf)
    try:
        kept.up()
        said = kept.run("sacctmgr", "-iQ", "add", "account", "science")
        said += kept.run(
            *("sacctmgr", "-iQ", "add", "user", "root", "account=science"),
            f"maxsubmitjobs={MAX_SUBMIT}",
        )
        assert f"MaxSubmitJobs = {MAX_SUBMIT}" in said, said
        yield kept
    finally:
        kept.down()
        shutil.rmtree(root, ignore_errors=True)
        os.environ["SLURM_CONF"] = before
        cluster.up()


def test_a_sweep_stays_within_its_accounts_limits_and_slurm_remembers_how_jobs_ended(
    accounting: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep(accounting, tmp_path, "cluster.account=science", "cluster.rollout.n_tasks=4")
    layout, spec = Layout(tmp_path), sweep_spec(sweep.words)
    checks = {check.name: check for check in slurm_checks(layout, spec)}
    assert checks["account"].level is Level.OK
    assert f"{MAX_SUBMIT} jobs at once" in checks["submit limit"].found

    assert sweep.launch("cluster.account=nobody") == 2
    assert "sbatch says: " in capsys.readouterr().err
    assert not sweep.layout.root.exists()

    try:
        assert sweep.launch() == 0
        assert len(sweep.rollout_jobs()) == 1, "of two jobs one is for grading"
        sweep.wait_ended()
        assert sweep.n_open() == 0
        (job,) = sweep.rollout_jobs()
        assert str(ending(job)).startswith("COMPLETED")
        assert "science" in accounting.run("sacct", "-nXP", f"--jobs={job}", "--format=Account")
        assert_nothing_left(sweep)
    finally:
        sweep.clear()
