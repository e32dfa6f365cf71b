"""Trajectory and mini's dicts are translated without loss."""

import sys

from pipeline.agent.messages import message_from_mini, mini_from_message
from pipeline.host.process import run_command
from tests.agent.rollouts import PRUNE, rollout
from tests.fakes import WordCounter, bash, planctl, says, submits


def test_every_message_of_a_run_survives_the_way_to_mini_and_back():
    outcome, _ = rollout(
        [
            says("Plan.", planctl("set", steps=["a"]), bash("ls"), reasoning="Think."),
            says("bad"),
            submits(),
        ],
        arm=PRUNE,
    )
    for message in outcome.messages:
        mini = mini_from_message(message)
        again = message_from_mini(
            mini,
            index=message.index,
            step_index=mini["extra"]["step_index"],
            counter=WordCounter(),
        )
        assert again == message


def test_a_foreign_tool_message_is_an_output_of_bash():
    mini = {"role": "tool", "content": "x", "tool_call_id": "c", "extra": {"returncode": 1}}
    message = message_from_mini(mini, index=0, step_index=0, counter=WordCounter())
    assert (message.tool, message.returncode, message.is_prunable) == ("bash", 1, True)


def test_importing_mini_prints_nothing_makes_nothing_and_leaves_litellm_out(tmp_path):
    program = (
        "import sys; import pipeline.agent.rollout as r; "
        "assert 'minisweagent' not in sys.modules; r.prepare_import(); "
        "import pipeline.agent.plan_agent; "
        "assert 'minisweagent' in sys.modules; "
        "assert not {'litellm', 'openai', 'torch', 'swebench'} & set(sys.modules)"
    )
    result = run_command(
        [sys.executable, "-c", program], env={"HOME": str(tmp_path)}, timeout_s=120.0
    )
    assert (result.returncode, result.text) == (0, "")
    assert list(tmp_path.iterdir()) == []
