"""Which patches change how tests are run."""

import pytest

from pipeline.grading.run_settings import run_settings_in


def diff(path: str, *, old: str | None = None) -> str:
    old = old or path
    return f"diff --git a/{old} b/{path}\n--- a/{old}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    "path",
    ["conftest.py", "tests/sub/conftest.py", "setup.cfg", "pytest.ini", "tox.ini", "pyproject.toml",
     "jest.config.mjs", "src/sitecustomize.py"],
)  # fmt: skip
def test_settings_are_known_by_their_name_in_any_folder(path: str) -> None:
    assert run_settings_in(diff("module.py") + diff(path)) == (path,)


def test_a_setting_that_is_moved_away_or_removed_counts() -> None:
    gone = "diff --git a/tox.ini b/tox.ini\ndeleted file mode 100644\n--- a/tox.ini\n+++ /dev/null"
    assert run_settings_in(gone) == ("tox.ini",)
    assert run_settings_in(diff("old.ini", old="tox.ini")) == ("tox.ini",)


def test_a_patch_without_gits_headers_is_read_too() -> None:
    assert run_settings_in("--- a/setup.cfg\n+++ b/setup.cfg\n@@ -1 +1 @@\n-a\n+b\n") == (
        "setup.cfg",
    )


def test_what_a_patch_says_in_its_lines_does_not_count() -> None:
    assert run_settings_in(diff("README.md") + "+see conftest.py\n+++ conftest.py\n") == ()
    assert run_settings_in(diff("my_conftest.py")) == ()
