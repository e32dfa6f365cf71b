"""An output that moves to a file can be read back by the agent.

See docs/methods.md, Editing by rule.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.arms.offload import Offload
from pipeline.records.failure import FailureClass
from pipeline.sandbox.local import LocalSandboxes, bubblewrap_works
from pipeline.spec.arm import ArmSpec
from pipeline.views.trajectory import Part
from tests.agent.rollouts import ROW, contents, rebuilt, rollout
from tests.fakes import bash, says, submits

OFFLOAD = ArmSpec(name="offload", policy=Offload(min_tokens=300, head_lines=2, tail_lines=2))
LONG = "for i in $(seq 400); do echo naïve line $i; done"


def repository(_row: Mapping[str, Any], folder: Path) -> None:
    (folder / "code.py").write_text("x = 1\n")
    me = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("add", "."), (*me, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.mark.parametrize("confine", [False, True])
def test_the_agent_reads_an_offloaded_output_back_and_its_patch_stays_clean(
    tmp_path: Path, confine: bool
):
    if confine and not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    box = LocalSandboxes(tmp_path, repository, confine=confine).start(ROW, purpose="rollout")
    script = [
        says("", bash(LONG)),
        says(
            "", bash("sed -n 200,202p /tmp/outputs/output_3.txt; wc -l < /tmp/outputs/output_3.txt")
        ),
        says("", bash("git status --porcelain --ignored")),
        says("", bash("echo 'x = 2' > code.py && git diff > /tmp/patch.txt")),
        submits("cat /tmp/patch.txt"),
    ]
    try:
        outcome, requests = rollout(script, arm=OFFLOAD, sandbox=box)
        kept = box.download("/tmp/outputs/output_3.txt", limit_bytes=1 << 20).decode()
    finally:
        box.stop()
    assert outcome.failure_class is FailureClass.OK
    assert kept == outcome.messages[3].content
    shown = contents(requests[1])[3]
    assert "/tmp/outputs/output_3.txt" in shown
    assert "naïve line 200\n" not in shown
    assert "naïve line 200\n" in contents(requests[2])[5]
    assert contents(requests[3])[7] == "<returncode>0</returncode>\n<output>\n</output>"
    assert "+x = 2" in outcome.patch
    assert "outputs" not in outcome.patch
    assert [r["messages"] for r in requests] == rebuilt(outcome)
    edits = [edit for call in outcome.calls for edit in call.edits]
    assert [(e.message_index, e.part, e.reason) for e in edits] == [(3, Part.CONTENT, "offload")]
