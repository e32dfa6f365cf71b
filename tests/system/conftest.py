"""Skips what is not installed, and fails instead where the environment says it must be there.

`REQUIRE=apptainer,slurm make test-system` turns the absence of either into a failure, so that a
machine that ought to have them cannot pass by skipping.
"""

from collections.abc import Callable

import pytest

from pipeline.host.environment import environment


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
