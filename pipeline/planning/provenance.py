"""Where a sweep came from: the code's state, the packages' versions, the machine."""

import hashlib
import platform
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from pipeline.host.process import run_command

CHECKOUT = Path(__file__).resolve().parents[2]
RECORDED_PACKAGES = (
    "planprune",
    "mini-swe-agent",
    "swebench",
    "submitit",
    "hydra-core",
    "pyarrow",
)


def git_state(checkout: Path = CHECKOUT) -> tuple[str | None, str | None]:
    """Return the checkout's commit and the hash of its uncommitted diff; None where unknown.

    The second is None for a clean tree: what ran is then exactly the commit.
    """
    commit = _git(checkout, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    diff = _git(checkout, "diff", "HEAD", "--", "pipeline", "conf")
    dirty = hashlib.sha256(diff.encode()).hexdigest() if diff else None
    return commit.strip(), dirty


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    versions = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def site_facts(cluster: str) -> Mapping[str, str]:
    """Return what is known of the machine that launches."""
    return {
        "cluster": cluster,
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _git(checkout: Path, *words: str) -> str | None:
    try:
        done = run_command(["git", "-C", str(checkout), *words], timeout_s=30.0)
    except OSError:
        return None
    return done.text if done.returncode == 0 else None
