"""The checks of a site: what each found, whether that will do, and what to do about it.

Owns the form of a check and the order in which they are asked. What is asked of Slurm is in
`doctor_slurm`, of the machine in `doctor_host`. A check asks and reports; it mends nothing, and
what it writes (a file to see whether folders can be written) it removes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Whether what was found will do."""

    OK = "ok"
    WARN = "warn"
    """It works, or may work, but not as it could."""
    FAIL = "fail"
    """A sweep would fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One look at the site."""

    name: str
    level: Level
    found: str
    fix: str = ""
    """What to do; empty where nothing is to be done."""


def ok(name: str, found: str) -> Check:
    """Return a check that found what is needed."""
    return Check(name=name, level=Level.OK, found=found)


def warn(name: str, found: str, fix: str) -> Check:
    """Return a check that found something to look at."""
    return Check(name=name, level=Level.WARN, found=found, fix=fix)


def fail(name: str, found: str, fix: str) -> Check:
    """Return a check that found why a sweep would fail."""
    return Check(name=name, level=Level.FAIL, found=found, fix=fix)


def worst(checks: Iterable[Check]) -> Level:
    """Return the gravest level among the checks."""
    order = list(Level)
    return max((check.level for check in checks), key=order.index, default=Level.OK)
