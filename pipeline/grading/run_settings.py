"""Does a patch change how tests are run? Worth a look, and no verdict: some issues ask for it."""

import re
from pathlib import PurePosixPath

_NAMES = frozenset(
    {
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"),
        *("tox.toml", "setup.cfg", "pyproject.toml", "noxfile.py", ".coveragerc", "runtests.py"),
        *("sitecustomize.py", "usercustomize.py", ".rspec", "phpunit.xml", "phpunit.xml.dist"),
    }
)
_PREFIXES = ("jest.config.", "vitest.config.", "karma.conf.", ".mocharc.", "babel.config.")

_HEADER = re.compile(
    r"^(?:diff --git .*|--- .*\n\+\+\+ .*|rename (?:from|to) .*|copy to .*)$", re.MULTILINE
)
_PATH = re.compile(r'[^\s"]+')


def run_settings_in(patch: str) -> tuple[str, ...]:
    """Return the files of `patch` that settings of test runs are read from, sorted.

    Known by their names, in any folder: a `conftest.py` below `docs` may matter as well.
    """
    words = {word for header in _HEADER.findall(patch) for word in _PATH.findall(header)}
    paths = {re.sub(r"^[ab]/", "", word) for word in words}
    return tuple(sorted(path for path in paths if _is_setting(path)))


def _is_setting(path: str) -> bool:
    name = PurePosixPath(path).name
    return name in _NAMES or name.startswith(_PREFIXES)
