"""What a sandbox may use, and what its commands find in their environment.

Owns the numbers and the variables that every kind of sandbox shares. The kinds differ in how
they hold a command to them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.protocols import Purpose
from pipeline.spec.sweep import WORKDIR

NO_NETWORK: Mapping[Purpose, bool] = {"rollout": False, "grade": False}
"""Whether commands reach the network, unless configured otherwise."""

COMMAND_ENVIRONMENT = {
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "LESS": "-R",
    "TERM": "dumb",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
}
"""Keeps programs from waiting for a key or drawing bars: nobody is there to see either."""


def workdir_of(row: Mapping[str, Any]) -> str:
    """Return where a row's repository lies in its sandbox."""
    return str(row.get("workdir") or WORKDIR)


def has_network(row: Mapping[str, Any], purpose: Purpose, *, allowed: bool) -> bool:
    """Return whether a sandbox reaches the network: where the site allows it and the row does."""
    return allowed and row.get(f"network_{purpose}") is not False


def variables_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that a row sets for all its commands: JSON in its column `env`."""
    return dict(json.loads(row.get("env") or "{}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on one sandbox. Commands that pass one are killed; their result says so."""

    output_bytes: int = 1 << 20
    """Of one command's output; the middle of anything longer is dropped."""
    memory_bytes: int | None = None
    """Of all processes together, shared pages counted once; None: unbounded."""
    processes: int = 512
    """At once, over all commands, background ones included."""
    start_timeout_s: float = 600.0
