"""The examples in docs/analysis.md run as printed."""

import re
from pathlib import Path

import pytest

from pipeline.analysis.tables import open_tables

PAGE = (Path(__file__).parents[2] / "docs/analysis.md").read_text()


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", PAGE, re.S))
def test_a_worked_query_runs(query: str, pristine: Path):
    with open_tables(pristine) as connection:
        assert connection.execute(query).fetchall()


def test_the_worked_python_runs(pristine: Path, capsys: pytest.CaptureFixture[str]):
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
    exec(code.replace("results/demo", str(pristine)), {})
    assert "Estimate(" in capsys.readouterr().out
