"""Recorded runs as load on a real vLLM: settings that it takes, and one that it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.launch import launch
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import session
from tests.system import vllm_site

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_calls_go_by_priority_and_a_refused_setting_is_shown_as_refused(
    require: Callable[..., None], tmp_path: Path
):
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    write_lines(tmp_path / "sessions" / "a.jsonl", session())
    shipped = ("default_again", "kv_offloading", "retention_0", "slots_8", "slots_32")
    words = [
        *("+sweep=serving", *vllm_site.overrides("tiny"), f"results={tmp_path}/serving"),
        *(f"~load.settings.{name}" for name in (*shipped, "prefix_match_16", "no_prefix_cache")),
        *("load.settings.default.flags=[--scheduling-policy,priority]", "load.pace=0"),
        *("load.settings.default.priority=true", "load.settings.priority.flags=[--no-such-flag]"),
        *(f"load.trajectories={tmp_path}/sessions", "load.runs=3", "load.max_answer_tokens=4"),
    ]
    console = Console(record=True, width=300)
    assert launch(words, console) == 0
    head, _, measured, refused = (line.split() for line in console.export_text().splitlines())
    assert head[:4] == ["3", "runs,", "6", "calls,"]
    # The prompts are shorter than a block of the cache.
    assert measured == ["default", "1.00", "1.00", "0:0", "0:0"]
    assert refused[:2] == ["priority", "refused:"]
    assert "--no-such-flag" in refused
