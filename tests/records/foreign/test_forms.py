"""Old and other forms of mini's files: format 1, the Responses API, pictures."""

import json
from typing import Any

import pytest

from pipeline.records.failure import FailureClass
from pipeline.records.foreign.mini import trajectory_from_mini
from pipeline.replay import main as replay_door
from tests.records.foreign.files import CASES, call, response, result, trajectory, words

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


def reply(text: str, prompt: int) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "extra": {"response": response(prompt)}}


def format1() -> dict[str, Any]:
    data = trajectory(
        reply("Look.\n```bash\ncat scale.py\n```", 100),
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\nnone\n</output>"},
        reply("Let me think without a block.", 130),
        {"role": "user", "content": "Give exactly one block."},
        reply("```bash\nsubmit\n```", 150),
        {"role": "user", "content": "diff --git a/a b/a\n"},
    )
    return {**data, "trajectory_format": "mini-swe-agent-1"}


def test_in_format_1_the_message_after_a_reply_is_its_output() -> None:
    run = trajectory_from_mini(format1(), words)
    (output,) = run.trajectory.observations()
    assert (output.command, output.returncode) == ("cat scale.py", 1)
    assert [c.prompt_tokens for c in run.calls] == [100, 130, 150]
    assert run.failure_class is FailureClass.OK


def test_in_format_1_a_complaint_about_the_form_is_no_output() -> None:
    roles = [(m.role, m.tool) for m in trajectory_from_mini(format1(), words).trajectory.messages]
    assert roles[-3:] == [("assistant", None), ("user", None), ("assistant", None)]


def test_in_format_1_what_follows_the_last_reply_was_never_shown() -> None:
    run = trajectory_from_mini(format1(), words)
    assert not any("diff --git" in m.content for m in run.trajectory.messages)


def responses() -> dict[str, Any]:
    return trajectory(
        {
            "object": "response",
            "created_at": 1_764_590_400,
            "model": "m",
            "status": "completed",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look first."}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "xxxx"},
                {"type": "message", "content": [{"type": "output_text", "text": "Reading."}]},
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "bash",
                    "arguments": '{"command": "cat scale.py"}',
                },
            ],
            "usage": {
                "input_tokens": 200,
                "input_tokens_details": {"cached_tokens": 64},
                "output_tokens": 30,
                "output_tokens_details": {"reasoning_tokens": 12},
            },
            "extra": {"actions": [{"command": "cat scale.py", "tool_call_id": "c1"}]},
        },
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "FACTOR = 1"}],
            "extra": {"returncode": 0, "raw_output": "FACTOR = 1"},
        },
    )


def test_responses_items_are_a_reply_and_its_output() -> None:
    run = trajectory_from_mini(responses(), words)
    reply, output = run.trajectory.messages[2:]
    assert (reply.role, reply.content, reply.reasoning) == ("assistant", "Reading.", "Look first.")
    assert [(c.id, c.name) for c in reply.tool_calls] == [("c1", "bash")]
    assert (output.tool_call_id, output.command) == ("c1", "cat scale.py")
    assert output.printed == "FACTOR = 1"


def test_responses_usage_is_counted_like_any_other() -> None:
    (one,) = trajectory_from_mini(responses(), words).calls
    counts = (one.prompt_tokens, one.cached_tokens, one.completion_tokens, one.reasoning_tokens)
    assert counts == (200, 64, 30, 12)
    assert one.started_at == 1_764_590_400.0


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def with_pictures(*prompts: int | None) -> dict[str, Any]:
    shown = [{"type": "text", "text": "seen:"}, PICTURE, PICTURE]
    raw = "<picture>data:image/png;base64,AAAA</picture>"
    return trajectory(
        call(1, "shot", prompts[0]),
        result(1, shown, raw_output=raw),
        call(2, "submit", prompts[1]),
        task=[{"type": "text", "text": "See picture."}, PICTURE],
    )


def test_a_picture_weighs_what_the_served_prompt_grew_by() -> None:
    messages = trajectory_from_mini(with_pictures(1000, 3000), words).trajectory.messages
    texts = [trajectory_from_mini(trajectory(call(1, "shot", 9)), words).trajectory.messages][0]
    assert sum(m.n_tokens for m in messages[:2]) == 1000
    assert sum(m.n_tokens for m in messages[:4]) == 3000
    assert messages[2].n_tokens == texts[2].n_tokens


def test_policies_judge_an_output_with_pictures_by_its_text() -> None:
    assert (
        trajectory_from_mini(with_pictures(1000, 3000), words).trajectory.messages[3].printed
        == "seen:"
    )


@pytest.mark.parametrize("prompts", [(None, None), (1000, None), (1000, 900)])
def test_pictures_of_unknown_weight_are_refused(prompts: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="weight is unknown"):
        trajectory_from_mini(with_pictures(*prompts), words)


def test_a_picture_that_no_call_followed_was_never_served() -> None:
    data = trajectory(call(1, "shot", 50), result(1, [PICTURE]))
    assert trajectory_from_mini(data, words).trajectory.messages[3].n_tokens == 0


@needs_cases
@pytest.mark.parametrize("name", ["format1-1", "responses-1"])
def test_forms_that_were_met_in_the_wild_are_read(name: str) -> None:
    data = json.loads((CASES / "trajectories" / f"{name}.traj.json").read_text())
    run = trajectory_from_mini(data, words)
    assert run.failure_class is FailureClass.OK
    assert len(run.calls) == 3
    commands = [m.command for m in run.trajectory.observations()]
    assert commands[0] == "cat a.txt"
    assert len(commands) == 2


@needs_cases
def test_masking_a_picture_saves_what_it_added_to_the_served_prompt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(CASES / "trajectories" / "images-1.traj.json")
    arm = "observation_mask[keep_last_turns=0]"
    assert replay_door([path, "--arms", "full_history", arm, "--json", "--processes", "1"]) == 0
    full, masked = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert full["prompt_tokens"] == 1900 + 3400
    assert full["prompt_tokens"] - masked["prompt_tokens"] > 1300
