"""ATIF: one test for each trap of the format."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import ingest as ingest_door
from pipeline.records.failure import FailureClass
from pipeline.records.foreign.atif import run_from_atif
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.foreign.run import ForeignRun
from tests.records.foreign.files import call, result, trajectory, words, write
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import session


def agent_step(number: int, **more: Any) -> dict[str, Any]:
    step = {
        "step_id": number,
        "source": "agent",
        "timestamp": f"2025-12-01T12:00:{number:02d}Z",
        "message": f"step {number}",
        "tool_calls": [
            {
                "tool_call_id": f"c{number}",
                "function_name": "bash",
                "arguments": {"command": f"cat {number}"},
            }
        ],
        "observation": {"results": [{"source_call_id": f"c{number}", "content": f"out {number}"}]},
        "metrics": {
            "prompt_tokens": 100 * number,
            "cached_tokens": 90 * number,
            "completion_tokens": 10,
        },
    }
    return {**step, **more}


def atif(*steps: dict[str, Any], agent: str = "some-agent", **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s",
        "agent": {"name": agent, "version": "3.1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You work in a shell."},
            {"step_id": 2, "source": "user", "message": "Mend the scale."},
            *steps,
        ],
        "a_key_of_tomorrow": {"x": 1},
        **more,
    }


def read(*steps: dict[str, Any], **more: Any) -> ForeignRun:
    return run_from_atif(atif(*steps, **more), Path("nowhere/agent/trajectory.json"), words)


def test_a_step_of_the_agent_is_a_call_with_its_results() -> None:
    run = read(agent_step(3), agent_step(4))
    assert (run.agent, run.agent_version, run.model) == ("some-agent", "3.1", "m")
    assert [(c.prompt_tokens, c.cached_tokens) for c in run.calls] == [(300, 270), (400, 360)]
    assert [c.message_count for c in run.calls] == [2, 4]
    assert [m.command for m in run.trajectory.observations()] == ["cat 3", "cat 4"]
    assert (run.task, run.wall_s) == ("Mend the scale.", 1.0)


def test_several_calls_of_one_step_and_a_result_without_an_id() -> None:
    calls = [
        {"tool_call_id": "a", "function_name": "bash", "arguments": {"command": "ls"}},
        {"tool_call_id": "b", "function_name": "bash", "arguments": '{"command": "pwd"}'},
    ]
    results = [{"source_call_id": "a", "content": "x"}, {"source_call_id": None, "content": "/"}]
    run = read(agent_step(3, tool_calls=calls, observation={"results": results}))
    found = [(m.command, m.content) for m in run.trajectory.observations()]
    assert found == [("ls", "x"), ("pwd", "/")]


def test_what_was_copied_from_another_context_is_shown_and_not_billed_twice() -> None:
    run = read(agent_step(3, is_copied_context=True), agent_step(4))
    assert [c.prompt_tokens for c in run.calls] == [400]
    assert len(run.trajectory.turns) == 2
    assert "not billed again: 1 step" in run.notes[0]


def test_a_step_without_a_call_bills_nothing() -> None:
    assert len(read(agent_step(3, llm_call_count=0), agent_step(4)).calls) == 1


def test_the_sizes_of_summed_calls_are_unknown() -> None:
    run = read(agent_step(3, llm_call_count=2))
    assert run.calls[0].prompt_tokens is None
    assert "several calls are summed in 1 step" in run.notes[0]


@pytest.mark.parametrize(
    ("agent", "key", "prompt"),
    [
        ("opencode", "cache_write_tokens", 340),
        ("claude-code", "cache_creation_input_tokens", 300),
        ("codex", "cache_write_input_tokens", 300),
    ],
)
def test_cache_writes_are_in_the_prompt_whatever_the_converter_does(
    agent: str, key: str, prompt: int
) -> None:
    metrics = {"prompt_tokens": 300, "cached_tokens": 200, "extra": {key: 40}}
    (one,) = read(agent_step(3, metrics=metrics), agent=agent).calls
    assert (one.prompt_tokens, one.cached_tokens, one.cache_write_tokens) == (prompt, 200, 40)


def test_a_message_in_parts_with_a_picture_weighs_what_the_prompt_grew_by() -> None:
    parts = [{"type": "text", "text": "seen"}, {"type": "image", "source": {"path": "a.png"}}]
    shown = {"results": [{"source_call_id": "c3", "content": parts}]}
    run = read(agent_step(3, observation=shown), agent_step(4))
    assert sum(m.n_tokens for m in run.trajectory.messages[2:4]) == 400 - 300


def test_calls_of_sub_agents_were_billed_and_stand_aside() -> None:
    inner = atif(agent_step(1), agent_step(2, is_copied_context=True), agent="helper")
    run = read(agent_step(3), subagent_trajectories=[inner])
    assert [c.prompt_tokens for c in run.calls] == [300]
    assert [c.prompt_tokens for c in run.aside] == [100]
    assert "1 call of its sub-agents" in run.notes[0]


def continued(folder: Path) -> Path:
    """A trial whose context was made anew: the second file copies the summary and a step."""
    second = {
        **atif(agent_step(4, is_copied_context=True), agent_step(5)),
        "continued_trajectory_ref": None,
    }
    write(folder / "trajectory.cont-1.json", second)
    first = atif(agent_step(3), agent_step(4), continued_trajectory_ref="trajectory.cont-1.json")
    return write(folder / "trajectory.json", first)


def test_a_trajectory_that_goes_on_in_another_file_is_one_run(tmp_path: Path) -> None:
    """It was two runs, and so two seeds of one task."""
    path = continued(tmp_path / "scale__Ab1xQ" / "agent")
    assert list(trajectory_files(tmp_path)) == [path]
    (run,) = runs_in(path, words)
    assert [c.prompt_tokens for c in run.calls] == [300, 400, 500]
    # The new context: task and system prompt again, and the copied step with its result.
    assert {e.message_index for e in run.calls[-1].edits} == set(range(6))
    assert run.calls[-1].message_count == 10


def test_a_continuation_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = continued(tmp_path)
    (tmp_path / "trajectory.cont-1.json").unlink()
    with pytest.raises(OSError, match="cont-1"):
        list(runs_in(path, words))


def test_a_trajectory_that_goes_on_in_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", atif(agent_step(3), continued_trajectory_ref="t.json"))
    with pytest.raises(ValueError, match="which it came from"):
        list(runs_in(path, words))


def test_without_an_ending_nothing_is_said_about_the_agent() -> None:
    assert read(agent_step(3)).failure_class is FailureClass.UNKNOWN_ENDING
    assert read().failure_class.is_infra


def test_harbor_says_beside_it_how_the_trial_ended(tmp_path: Path) -> None:
    raised = {"exception_type": "AgentTimeoutError", "exception_message": "after 3600 s"}
    write(tmp_path / "t__Ab1xQ" / "result.json", {"exception_info": raised})
    path = tmp_path / "t__Ab1xQ" / "agent" / "trajectory.json"
    run = run_from_atif(atif(agent_step(3)), path, words)
    assert (run.failure_class, run.failure) == (FailureClass.LIMIT_TIME, "after 3600 s")


def test_a_trial_that_two_files_hold_is_one_run(tmp_path: Path) -> None:
    agent = tmp_path / "in" / "scale__Ab1xQ" / "agent"
    write(agent / "trajectory.json", atif(agent_step(3)))
    mini = trajectory(call(1, "ls", 100), result(1, "a"))
    write(agent / "mini-swe-agent.trajectory.json", mini)
    out = tmp_path / "out"
    argv = [str(tmp_path / "in"), "--out", str(out), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 0
    (row,) = pq.read_table(out / "tables/runs").to_pylist()
    assert row["agent"] == "mini-swe-agent"


def test_a_session_log_below_a_trials_trajectory_is_the_same_run(tmp_path: Path) -> None:
    """Harbor keeps the agent's own log beside what it made of it: the run was billed twice."""
    trial = tmp_path / "scale__Ab1xQ" / "agent"
    path = write(trial / "trajectory.json", atif(agent_step(3), agent="claude-code"))
    write_lines(trial / "sessions" / "projects" / "p" / "s.jsonl", session())
    alone = write_lines(tmp_path / "elsewhere" / "s.jsonl", session())
    assert list(trajectory_files(tmp_path)) == [alone, path]


def test_a_folder_of_them_is_ingested(tmp_path: Path) -> None:
    for trial in ("scale__Ab1xQ", "scale__Zz9qR"):
        data = atif(agent_step(3, timestamp=1e9 + len(trial)), session_id=trial)
        write(tmp_path / "in" / trial / "agent" / "trajectory.json", data)
    out = tmp_path / "out"
    argv = [str(tmp_path / "in"), "--out", str(out), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 0
    rows = pq.read_table(out / "tables/runs").to_pylist()
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert {row["instance_id"].partition("-")[0] for row in rows} == {"scale"}
