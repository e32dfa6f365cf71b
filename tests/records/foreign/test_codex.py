"""Codex's rollouts: one test for each trap of the format."""

import json
from pathlib import Path
from typing import Any

from pipeline.records.foreign.codex import run_from_codex
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.foreign.run import ForeignRun
from tests.records.foreign.files import words
from tests.records.foreign.logs import Line, write_lines

NOW = "2025-12-01T12:00:00Z"


def line(kind: str, payload: dict[str, Any]) -> Line:
    return {"timestamp": NOW, "type": kind, "payload": payload}


def item(kind: str, **payload: Any) -> Line:
    return line("response_item", {"type": kind, **payload})


def message(role: str, text: str) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def usage(prompt: int, cached: int = 0, out: int = 10) -> dict[str, int]:
    return {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "output_tokens": out,
        "reasoning_output_tokens": 4,
        "total_tokens": prompt + out,
    }


def counted(total: dict[str, int], last: dict[str, int] | None) -> Line:
    info: dict[str, Any] = {"total_token_usage": total}
    if last is not None:
        info["last_token_usage"] = last
    return line("event_msg", {"type": "token_count", "info": info})


META = line("session_meta", {"id": "s", "timestamp": NOW, "cli_version": "0.60.0"})
TURN = line("turn_context", {"model": "gpt-5.6"})


def asked(command: str) -> Line:
    arguments = json.dumps({"command": ["bash", "-lc", command]})
    return item("function_call", name="shell", call_id="c1", arguments=arguments)


def rollout() -> list[Line]:
    return [
        META,
        TURN,
        message("user", "Mend the scale."),
        item(
            "reasoning", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="x"
        ),
        asked("cat scale.py"),
        counted(usage(100), usage(100)),
        item("function_call_output", call_id="c1", output="FACTOR = 1"),
        message("assistant", "Done."),
        counted(usage(250, 96, 20), usage(150, 96)),
    ]


def read(tmp_path: Path, lines: list[Line], **more: Any) -> ForeignRun:
    return run_from_codex(write_lines(tmp_path / "rollout-x.jsonl", lines, **more), words)


def test_a_count_closes_the_call_that_the_items_before_it_belong_to(tmp_path: Path) -> None:
    run = read(tmp_path, rollout())
    counts = [(c.prompt_tokens, c.cached_tokens, c.reasoning_tokens) for c in run.calls]
    assert counts == [(100, 0, 4), (150, 96, 4)]
    (output,) = run.trajectory.observations()
    assert (output.command, output.content) == ("cat scale.py", "FACTOR = 1")
    assert run.trajectory.messages[1].reasoning == "Look."
    assert (run.agent, run.agent_version, run.model) == ("codex", "0.60.0", "gpt-5.6")


def test_a_count_that_repeats_with_unchanged_totals_closes_nothing(tmp_path: Path) -> None:
    lines = rollout()
    lines.insert(6, lines[5])
    lines.append(lines[-1])
    assert [c.prompt_tokens for c in read(tmp_path, lines).calls] == [100, 150]


def test_without_the_last_usage_the_totals_are_subtracted(tmp_path: Path) -> None:
    lines = rollout()
    lines[5] = counted(usage(100), None)
    lines[8] = counted(usage(250, 96, 20), None)
    calls = read(tmp_path, lines).calls
    assert [(c.prompt_tokens, c.cached_tokens) for c in calls] == [(100, 0), (150, 96)]


def test_a_count_after_the_output_belongs_to_the_call_all_the_same(tmp_path: Path) -> None:
    lines = rollout()
    lines[5], lines[6] = lines[6], lines[5]
    assert [c.prompt_tokens for c in read(tmp_path, lines).calls] == [100, 150]


def test_a_compaction_replaces_the_history_and_its_estimate_is_no_call(tmp_path: Path) -> None:
    replaced = [
        message("user", "Mend the scale.")["payload"],
        message("user", "So far: ...")["payload"],
    ]
    lines = [
        *rollout(),
        line("compacted", {"message": "", "replacement_history": replaced}),
        counted(usage(290, 96, 20), usage(40)),
        message("assistant", "Going on."),
        counted(usage(350, 96, 30), usage(60)),
    ]
    run = read(tmp_path, lines)
    assert [c.prompt_tokens for c in run.calls] == [100, 150, 60]
    assert {e.message_index for e in run.calls[-1].edits} == {0, 1, 2, 3}
    assert [m.content for m in run.trajectory.messages[4:6]] == ["Mend the scale.", "So far: ..."]


def test_what_a_sub_agent_copied_from_its_parent_is_billed_there(tmp_path: Path) -> None:
    old = "2025-12-01T11:00:00Z"
    copied = [{**entry, "timestamp": old} for entry in rollout()[1:]]
    own = [message("assistant", "Mine."), counted(usage(300, 96, 30), usage(50))]
    run = read(tmp_path, [META, *copied, *own])
    assert [c.prompt_tokens for c in run.calls] == [50]
    assert [c.prompt_tokens for c in run.repeated] == [100, 150]
    assert len(run.trajectory.messages) == 5
    assert "billed there" in run.notes[0]


def test_records_that_repeat_a_count_are_passed_over(tmp_path: Path) -> None:
    lines = [*rollout(), line("token_usage_record", usage(999))]
    assert len(read(tmp_path, lines).calls) == 2


def test_custom_tools_and_outputs_in_parts(tmp_path: Path) -> None:
    lines = [
        *rollout()[:3],
        item("custom_tool_call", name="apply_patch", call_id="p", input="*** Begin Patch"),
        counted(usage(100), usage(100)),
        item(
            "custom_tool_call_output",
            call_id="p",
            output={"content": [{"type": "text", "text": "ok"}]},
        ),
    ]
    (output,) = read(tmp_path, lines).trajectory.observations()
    assert (output.tool, output.command, output.content) == ("apply_patch", "*** Begin Patch", "ok")


def test_rollouts_are_found_by_content(tmp_path: Path) -> None:
    write_lines(tmp_path / "sessions" / "2025" / "r.jsonl", rollout(), torn='{"type": ')
    (path,) = trajectory_files(tmp_path)
    assert str(next(runs_in(path, words)).instance_id).startswith("mend_the_scale-")
