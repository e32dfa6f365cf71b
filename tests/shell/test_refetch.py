"""A read that brings back an earlier output: one rule for policies and the analysis."""

import pytest

from pipeline.shell.lines import output_lines
from pipeline.shell.refetch import brings_back

FILE = "".join(f"line {k} of the file\n" for k in range(10))
SHOWN = output_lines("cat f.py", FILE)


@pytest.mark.parametrize(
    ("command", "output", "expected"),
    [
        ("cat f.py", FILE, True),
        ("head -5 f.py", "\n".join(FILE.split("\n")[:5]), True),
        ("grep -n line f.py", "".join(f"{k + 1}:line {k} of the file\n" for k in range(4)), True),
        ("head -2 f.py", "\n".join(FILE.split("\n")[:2]), False),
        ("cat f.py g.py", FILE + "".join(f"other {k}\n" for k in range(3)), False),
        ("touch f.py", "", False),
        ("cat empty", "", False),
        ("python -m pytest -q", FILE, False),
        (None, FILE, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_read_of_the_same_lines_is_a_refetch(
    command: str | None, output: str, expected: bool
) -> None:
    assert brings_back(command, output, SHOWN) is expected
