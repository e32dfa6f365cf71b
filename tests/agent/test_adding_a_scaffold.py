"""docs/adding-a-scaffold.md, followed: its scaffold runs and submits."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.agent import rollout as rollout_module
from pipeline.records.failure import FailureClass
from pipeline.sandbox.local import LocalSandboxes
from tests.agent.rollouts import PRUNE, agent_spec, rebuilt, rollout, tool_names
from tests.fakes import bash, call, says
from tests.pages import block, names_in

PAGE = "adding-a-scaffold.md"


def repository(_row: Mapping[str, Any], folder: Path) -> None:
    (folder / "f").write_text("a\n")
    me = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("add", "."), (*me, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_the_pages_scaffold_works_on_a_task_and_submits_what_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_module, "scaffold_for", names_in(PAGE)["scaffold"])
    config = yaml.safe_load(block(PAGE, "yaml"))
    changes = {key: value for key, value in config.items() if key not in ("defaults", "name")}
    box = LocalSandboxes(tmp_path / "root", repository).start({}, purpose="rollout")
    script = [
        says("Hm."),
        says("", bash("echo b >> f"), bash("cat f")),
        says("", call("task_done")),
    ]
    try:
        outcome, requests = rollout(script, arm=PRUNE, agent=agent_spec(**changes), sandbox=box)
    finally:
        box.stop()
    assert outcome.failure_class is FailureClass.OK
    assert outcome.patch.endswith("+b\n")
    assert tool_names(requests[0]) == ["bash", "task_done", "planctl", "prune_observations"]
    assert [request["messages"] for request in requests] == rebuilt(outcome)
