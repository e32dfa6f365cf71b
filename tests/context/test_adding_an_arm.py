"""docs/adding-an-arm.md, followed: three new files, and nothing else is touched."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.pages import block

PAGE = "adding-an-arm.md"
ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "pipeline/arms/keep_errors.py": ("python", 0),
    "conf/arm/keep_errors.yaml": ("yaml", 0),
    "tests/context/test_keep_errors.py": ("python", 1),
}
COPIED = ("pipeline", "conf", "tests", "docs", "pyproject.toml")


def test_the_pages_three_files_add_an_arm_that_every_test_of_arms_accepts(tmp_path: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    for path, (language, number) in FILES.items():
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(block(PAGE, language, number))

    def ran(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    ran("-m", "tests.context.test_arms_page")
    ran("-m", "tests.spec.freeze")
    ran("-m", "ruff", "check", *(path for path in FILES if path.endswith(".py")))
    tests = ("test_keep_errors", "test_arm_spec", "test_arm_texts", "test_arms_page")
    ran("-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/context/{t}.py" for t in tests))
    ran("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "keep_errors", "tests/context")
