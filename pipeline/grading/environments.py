"""What an evaluation is run with where packages cannot be fetched, and how a log says so.

Official evaluation scripts install the instance's package again before they test it, most of them
with pip's build isolation, which fetches build tools. The script's text is never changed: all there
is to vary are pip's own variables. Owns the list of environments, in the order they are tried, and
the rule for when the next one is. Starts nothing; sandboxes and repetition are the worker's.

A failed installation does not end an official script: the tests run against whatever was installed
before. Such a verdict is not the official one, whichever way it went, so it is not used either way.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.grading.verdict import Grade
from pipeline.records.failure import GradeClass


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalEnvironment:
    """Variables that an evaluation script is run with, beside the sandbox's own."""

    name: str
    """As recorded in `grades.eval_environment`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    with_wheels: bool = False
    """pip also finds the site's folder of wheels."""


AT_ONCE = {
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_RETRIES": "0",
    "PIP_DEFAULT_TIMEOUT": "5",
}
"""What pip cannot fetch fails at once instead of after five retries; nothing else changes."""
NO_INDEX = {**AT_ONCE, "PIP_NO_INDEX": "1"}

OFFICIAL = EvalEnvironment(name="official")
OFFICIAL_AT_ONCE = EvalEnvironment(name="official", variables=AT_ONCE)
WHEELS = EvalEnvironment(name="wheels", variables=NO_INDEX, with_wheels=True)
"""Isolated builds as the official ones, with build tools from the site's wheels."""
# pip reads this variable as the value of `build_isolation`: 0 is "no isolation", 1 changes nothing.
INSTALLED = EvalEnvironment(
    name="installed", variables={**NO_INDEX, "PIP_NO_BUILD_ISOLATION": "0"}, with_wheels=True
)
"""Builds with the tools that the image has. Missing requirements still fail: tests without them
would count against the patch."""


def environments(*, network: bool, wheels: bool) -> tuple[EvalEnvironment, ...]:
    """Return what evaluations are tried with, in this order.

    Args:
        network: whether grading sandboxes are meant to reach the network.
        wheels: whether this site has a folder of wheels.
    """
    first = OFFICIAL if network else OFFICIAL_AT_ONCE
    return (first, WHEELS, INSTALLED) if wheels else (first, INSTALLED)


_INSTALL = re.compile(
    r"^\++ .*(?:\bpip[\d.]* install|\bsetup\.py (?:install|develop))", re.MULTILINE
)
_TESTS = ">>>>> Start Test Output"

_NOT_FETCHED = re.compile(
    r"^\s*(?:"
    r"ERROR: No matching distribution found for .*"
    r"|ERROR: Could not find a version that satisfies the requirement .*"
    r"|ERROR: Could not install packages due to an \w+Error: HTTPS?ConnectionPool.*"
    r"|error: Could not find suitable distribution for .*"
    r"|Download error on .*"
    r"|fatal: unable to access .*"
    r")$",
    re.MULTILINE,
)
"""How pip, setuptools' old installer and git end when they did not get something."""

_UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|Name or service not known|NameResolutionError"
    r"|Could not resolve host|Failed to establish a new connection|Network is unreachable"
    r"|No route to host|ConnectTimeoutError|ReadTimeoutError|ProxyError|Connection timed out"
)
"""Tells a network that failed from a package that does not exist."""

_NOT_INSTALLED = re.compile(
    r"^\s*(?:"
    r"(?:[\w.]*\.)?BackendUnavailable\b.*"
    r"|ModuleNotFoundError: No module named .*"
    r"|error: invalid command 'bdist_wheel'"
    r"|ERROR: Some build dependencies for .* (?:are missing|conflict).*"
    r")$",
    re.MULTILINE,
)
"""How a build ends that misses a tool which isolation would have fetched."""

_SUCCESS = re.compile(r"^Successfully installed ", re.MULTILINE)


def not_installed(test_output: str, environment: EvalEnvironment, *, network: bool) -> str | None:
    """Return the line that says the package was not installed for want of the network, else None.

    Only what lies between the first installation and the start of the tests is looked at: tests
    and diffs may print anything. Where the network is meant to work, a failed fetch counts only
    with a sign that it does not.
    """
    head = test_output.partition(_TESTS)[0]
    start = _INSTALL.search(head)
    if start is None:
        return None
    log = head[start.start() :]
    is_first = environment.name == OFFICIAL.name
    wanted = _NOT_FETCHED.search(log)
    if wanted and is_first and network and not _UNREACHABLE.search(log):
        return None
    if wanted is None and not is_first and not _SUCCESS.search(log):
        # The last one: a traceback names the module at its end.
        wanted = next(reversed(list(_NOT_INSTALLED.finditer(log))), None)
    return wanted[0].strip()[:200] if wanted else None


def wanted_network(grade: Grade, environment: EvalEnvironment, *, network: bool) -> str | None:
    """Return why a grading is to be tried with the next environment; None: its grade stands."""
    if grade.grade_class is GradeClass.PATCH_FAILED:
        return None
    return not_installed(grade.test_output, environment, network=network)
