"""Skips what is not installed, and fails instead where the environment says it must be there.

`REQUIRE=apptainer,slurm make test-system` turns the absence of either into a failure, so that a
machine that ought to have them cannot pass by skipping.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.host.environment import environment
from tests.system.slurm_site import REMEDY, Cluster, Outcome, Sweep, slurm_here


def required() -> frozenset[str]:
    """Return what `REQUIRE` names, separated by commas or spaces."""
    return frozenset(environment().get("REQUIRE", "").replace(",", " ").split())


def require_found(name: str, found: object, *, remedy: str) -> None:
    """Return if `found`; else skip with the remedy, or fail if `REQUIRE` names `name`."""
    if found:
        return
    message = f"{name} is not here; {remedy}"
    if name in required():
        pytest.fail(f"{message} (REQUIRE names it)", pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def require() -> Callable[..., None]:
    """Return `require_found`: `require("apptainer", shutil.which("apptainer"), remedy="...")`."""
    return require_found


@pytest.fixture(scope="session")
def cluster(
    require: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Return a running test cluster; this process's Slurm commands talk to it."""
    require("slurm", slurm_here(), remedy=REMEDY)
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    found.up()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(found.conf)
    yield found
    found.down()
    os.environ.pop("SLURM_CONF")
    if before is not None:
        os.environ["SLURM_CONF"] = before


@pytest.fixture
def sweeps(cluster: Cluster) -> Iterator[Callable[..., Sweep]]:
    """Return what makes a `Sweep` of a folder and overrides; no test leaves its jobs to the next.

    Jobs are cancelled, processes killed and nodes mended at the end, however the test went.
    """
    made: list[Sweep] = []

    def sweep(folder: Path, *overrides: str, grade_here: bool = False) -> Sweep:
        made.append(Sweep(cluster, folder, *overrides, grade_here=grade_here))
        return made[-1]

    yield sweep
    cluster.mend()
    for one in made:
        one.clear()


@pytest.fixture(scope="session")
def undisturbed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return the outcome of the small sweep on this machine, when nothing happens."""
    return Sweep(cluster, tmp_path_factory.mktemp("undisturbed")).launch_here()
