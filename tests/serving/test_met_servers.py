"""Servers with one odd habit each, as they were met, are found before a run is started."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.serving.client import HttpCompleter, RetryPolicy
from pipeline.serving.finding import Finding
from pipeline.serving.server_check import server_findings
from pipeline.spec.model import ModelSpec
from tests.serving.test_server_check import TOOLS

CASES = Path(__file__).parents[3] / "shared" / "cases"
ODD, SCRIPTED = "endpoint/fake2.py", "tools/fake_server.py"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


@contextmanager
def served_by(script: str, *words: str) -> Iterator[str]:
    """Give the address of a server that is a script of its own."""
    argv = [sys.executable, str(CASES / script), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}/v1"
        finally:
            server.terminate()


def findings_at(url: str, body: dict[str, str | None]) -> dict[str, Finding]:
    model = ModelSpec(name="case", kind="endpoint", repo="r", body=body)
    found = server_findings(
        lambda asked: HttpCompleter(asked, url, retry=RetryPolicy(max_attempts=1)),
        model, url, TOOLS, salt="check-1",
    )  # fmt: skip
    return {finding.what: finding for finding in found}


@pytest.mark.parametrize(
    ("habit", "what", "fix"),
    [
        ("truncate", "history", "larger window"),
        ("nosalt", "body", "{cache_salt: null}"),
        ("maxcompletion", "body", "{max_tokens: max_completion_tokens}"),
    ],
)
def test_an_odd_habit_stops_the_sweep_with_the_key_that_mends_it(
    tmp_path: Path, habit: str, what: str, fix: str
) -> None:
    with served_by(ODD, habit, str(tmp_path / "requests.jsonl")) as url:
        finding = findings_at(url, {})[what]
    assert finding.blocks
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("habit", "body"),
    [
        ("nosalt", {"cache_salt": None}),
        ("maxcompletion", {"max_tokens": "max_completion_tokens"}),
    ],
)
def test_with_that_key_the_server_is_as_good_as_others(
    tmp_path: Path, habit: str, body: dict[str, str | None]
) -> None:
    with served_by(ODD, habit, str(tmp_path / "requests.jsonl")) as url:
        assert not any(finding.blocks for finding in findings_at(url, body).values())


def test_a_window_that_the_server_tells_is_held_against_ours() -> None:
    with served_by(SCRIPTED, str(CASES / "window" / "script.json")) as url:
        finding = findings_at(url, {})["window"]
    assert finding.blocks
    assert "9,000 tokens are served" in finding.found
