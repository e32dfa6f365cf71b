"""When a log says that the package could not be installed for want of the network.

The lines below are what pip 23.2 and 26.3, setuptools and git print where there is no network.
"""

import os

import pytest

from pipeline.grading.environments import (
    INSTALLED,
    OFFICIAL,
    OFFICIAL_AT_ONCE,
    WHEELS,
    environments,
    not_installed,
)
from tests.grading.conftest import DATA

NO_DISTRIBUTION = "ERROR: No matching distribution found for setuptools>=40"
RETRYING = (
    "  WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) "
    "after connection broken by 'NewConnectionError('<HTTPSConnection object at 0x7fc0>: Failed to "
    "establish a new connection: [Errno -3] Temporary failure in name resolution')'"
)
ISOLATED = f"""\
Obtaining file:///testbed
  Installing build dependencies: finished with status 'error'
  error: subprocess-exited-with-error

  x pip subprocess to install build dependencies did not run successfully.
  ╰─> [3 lines of output]
      ERROR: Could not find a version that satisfies the requirement setuptools>=40 (from \
versions: none)
      {NO_DISTRIBUTION}
      [end of output]
"""
NO_BACKEND = """\
    raise BackendUnavailable(data.get('traceback', ''))
pip._vendor.pyproject_hooks._impl.BackendUnavailable: Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 1140, in _find_and_load_unlocked
ModuleNotFoundError: No module named 'setuptools'
"""
NO_WHEEL = """\
  x Preparing editable metadata (pyproject.toml) did not run successfully.
      error: invalid command 'bdist_wheel'
"""


def log(installation: str, tests: str = "t.py::a PASSED") -> str:
    return (
        "+ git show\n+    ERROR: No matching distribution found for a diff\n"
        f"+ python -m pip install -e .\n{installation}\n"
        f"+ : '>>>>> Start Test Output'\n{tests}\n+ : '>>>>> End Test Output'\n"
    )


def test_the_official_environment_comes_first_and_changes_nothing_where_there_is_a_network() -> (
    None
):
    assert environments(network=True, wheels=False) == (OFFICIAL, INSTALLED)
    assert OFFICIAL.variables == {}
    assert environments(network=False, wheels=True) == (OFFICIAL_AT_ONCE, WHEELS, INSTALLED)


@pytest.mark.parametrize(
    "line",
    [
        NO_DISTRIBUTION,
        "  ERROR: Could not find a version that satisfies the requirement x (from versions: none)",
        "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='files', "
        "port=443): Max retries exceeded with url: /x",
        "error: Could not find suitable distribution for Requirement.parse('numpy')",
        "Download error on https://index/simple/numpy/: [Errno -2] Name or service not known",
        "fatal: unable to access 'https://host/x.git/': Could not resolve host: host",
    ],
)
def test_what_cannot_be_fetched_without_a_network_is_named(line: str) -> None:
    assert not_installed(log(line), OFFICIAL_AT_ONCE, network=False) == line.strip()[:200]


def test_a_network_that_fails_is_told_from_a_package_that_does_not_exist() -> None:
    assert not_installed(log(ISOLATED), OFFICIAL, network=True) is None
    assert not_installed(log(RETRYING + "\n" + ISOLATED), OFFICIAL, network=True)


def test_a_network_that_came_back_in_time_is_no_failure() -> None:
    text = log(f"{RETRYING}\nSuccessfully installed tiny-1")
    assert not_installed(text, OFFICIAL, network=True) is None


@pytest.mark.parametrize("failure", [NO_BACKEND, NO_WHEEL, ISOLATED])
def test_a_build_tool_that_the_image_lacks_is_named(failure: str) -> None:
    assert not_installed(log(failure), INSTALLED, network=False)


def test_a_module_that_is_missed_and_done_without_is_no_failure() -> None:
    text = log(f"{NO_BACKEND}\nSuccessfully installed tiny-1")
    assert not_installed(text, INSTALLED, network=False) is None


def test_a_patch_that_breaks_its_own_installation_is_judged() -> None:
    broken = (
        "  File 'setup.py', line 3\nSyntaxError: invalid syntax\nerror: metadata-generation-failed"
    )
    for environment in environments(network=False, wheels=True):
        assert not_installed(log(broken), environment, network=False) is None


def test_what_tests_and_diffs_print_is_not_looked_at() -> None:
    text = log("Successfully installed tiny-1", tests=f"{RETRYING}\n{NO_DISTRIBUTION}")
    assert not_installed(text, OFFICIAL_AT_ONCE, network=False) is None
    assert not_installed(NO_DISTRIBUTION, OFFICIAL_AT_ONCE, network=False) is None


@pytest.mark.skipif(not DATA.exists(), reason=f"no stored gradings in {os.fspath(DATA)}")
def test_every_stored_real_log_has_installed_its_package() -> None:
    logs = sorted((DATA / "eval_logs").glob("*/test_output.txt"))
    assert len(logs) == 20
    for path in logs:
        text = path.read_text(errors="replace")
        assert "pip install" in text
        for environment in environments(network=False, wheels=True):
            assert not_installed(text, environment, network=False) is None, path.parent.name
