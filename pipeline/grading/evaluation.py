"""One evaluation of a patch: every environment it is tried with, each in a fresh sandbox.

Owns the walk through `pipeline.grading.environments`' list, and what a grading is that none of them
could install the package for: a failure of ours, with what each attempt came to. Repeating a
grading that ran out of time is the caller's.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.grading.environments import EvalEnvironment, environments, wanted_network
from pipeline.grading.harness import grade_patch
from pipeline.grading.verdict import Grade, infra_failed
from pipeline.protocols import Sandbox
from pipeline.records.failure import SandboxError
from pipeline.spec.site import SiteSpec

OpenSandbox = Callable[[], AbstractContextManager[Sandbox]]
"""Gives a fresh sandbox that is stopped at the end of its `with`."""

N_TRIES = 2
"""Of an evaluation that runs into the time limit, each in a fresh sandbox; of a gold patch also
where our side failed."""
NEEDS_NETWORK = "the evaluation needs the network"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSite:
    """What evaluations can fetch on this site."""

    network: bool = True
    wheels: tuple[Path, ...] = ()
    """Wheels that pip may install from, besides what the image has."""

    @property
    def environments(self) -> tuple[EvalEnvironment, ...]:
        """What evaluations are tried with here, in this order."""
        return environments(network=self.network, wheels=bool(self.wheels))


def eval_site(site: SiteSpec) -> EvalSite:
    """Return what evaluations can fetch on `site`.

    Raises:
        SandboxError: its folder of wheels has none.
    """
    if site.wheels is None:
        return EvalSite(network=site.network_grade)
    wheels = tuple(sorted(Path(site.wheels).glob("*.whl")))
    if not wheels:
        raise SandboxError(
            f"cluster.wheels={site.wheels}: there is no wheel; fill it on a node with network: "
            f"pip download -d {site.wheels} setuptools wheel, or leave cluster.wheels out"
        )
    return EvalSite(network=site.network_grade, wheels=wheels)


def evaluate(
    row: Mapping[str, Any],
    patch: str | None,
    start: OpenSandbox,
    site: EvalSite,
    *,
    timeout_s: float,
) -> Grade:
    """Return the grade of the first environment in which the package could be installed.

    The first attempt counts unless the installation fails because there is no network.

    Raises:
        SandboxError: a sandbox broke.
        DiskError: no room for one.
    """
    seconds, came_to, output = 0.0, [], ""
    for environment in site.environments:
        with start() as sandbox:
            grade = grade_patch(
                sandbox,
                row,
                patch,
                timeout_s=timeout_s,
                variables=environment.variables,
                wheels=site.wheels if environment.with_wheels else (),
            )
        seconds, output = seconds + grade.seconds, grade.test_output
        wanted = wanted_network(grade, environment, network=site.network)
        if wanted is None:
            return replace(grade, environment=environment.name, seconds=seconds)
        came_to.append(f"{environment.name}: {wanted}")
    failed = infra_failed(patch, reason=f"{NEEDS_NETWORK}: {'; '.join(came_to)}", seconds=seconds)
    return replace(failed, environment=site.environments[-1].name, test_output=output)
