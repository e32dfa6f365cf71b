"""Claude Code's logs: one test for each trap of the format."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.records.foreign.claude_code import repeated_calls, run_from_claude_code
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.foreign.run import ForeignRun
from pipeline.views.trajectory import Part
from tests.records.foreign.files import words
from tests.records.foreign.logs import Line, write_lines


def line(kind: str, uuid: str, parent: str | None, message: dict[str, Any], **more: Any) -> Line:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "timestamp": "2025-12-01T12:00:00.000Z",
        "version": "2.0.1",
        "message": message,
        **more,
    }


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> Line:
    return line("user", uuid, parent, {"role": "user", "content": content}, **more)


def said(
    uuid: str,
    parent: str,
    block: dict[str, Any],
    *,
    message: str = "msg_1",
    out: int = 9,
    **more: Any,
) -> Line:
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": out,
    }
    body = {"id": message, "role": "assistant", "model": "m", "content": [block], "usage": usage}
    return line("assistant", uuid, parent, body, **{"requestId": f"req_{message}", **more})


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def use(tool_id: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": "Bash", "input": {"command": command}}


def answer(tool_id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": tool_id, "content": content, **more}]


def session() -> list[Line]:
    """One call in three lines, with two parallel tools, and a last word."""
    return [
        user("u1", None, "Mend the scale."),
        said("a1", "u1", {"type": "thinking", "thinking": "Look first."}, out=1),
        said("a2", "a1", use("t1", "cat scale.py"), out=1),
        said("a3", "a2", use("t2", "ls"), out=31),
        user("u2", "a2", answer("t1", "FACTOR = 1")),
        user("u3", "a3", answer("t2", [text("scale.py")], is_error=True)),
        said("a4", "u3", text("Done."), message="msg_2"),
    ]


def read(tmp_path: Path, lines: list[Line], **more: Any) -> ForeignRun:
    path = write_lines(tmp_path / "projects" / "p" / "s.jsonl", lines, **more)
    return run_from_claude_code(path, words)


def test_the_lines_of_one_reply_are_one_call_with_the_fullest_usage(tmp_path: Path) -> None:
    run = read(tmp_path, session())
    assert [c.completion_tokens for c in run.calls] == [31, 9]
    assert [c.message_count for c in run.calls] == [1, 4]
    reply = run.trajectory.messages[1]
    assert reply.reasoning == "Look first."
    assert [call.id for call in reply.tool_calls] == ["t1", "t2"]


def test_the_prompt_includes_what_was_read_from_and_written_to_the_cache(tmp_path: Path) -> None:
    first = read(tmp_path, session()).calls[0]
    counts = (first.prompt_tokens, first.cached_tokens, first.cache_write_tokens)
    assert counts == (124, 100, 20)


def test_results_of_parallel_calls_hang_off_the_path_and_are_there(tmp_path: Path) -> None:
    found = list(read(tmp_path, session()).trajectory.observations())
    assert [(m.command, m.content, m.returncode) for m in found] == [
        ("cat scale.py", "FACTOR = 1", 0),
        ("ls", "scale.py", 1),
    ]


def test_other_branches_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = session()
    lines[1:1] = [said("b1", "u1", text("Another way."), message="msg_9")]
    run = read(tmp_path, lines)
    assert len(run.calls) == 2
    assert not any("Another way" in m.content for m in run.trajectory.messages)
    assert "1 call on other branches" in run.notes[0]
    assert [c.prompt_tokens for c in run.aside] == [124]


def test_a_side_question_repeats_message_ids_under_another_request(tmp_path: Path) -> None:
    lines = session()
    lines.insert(2, said("q1", "u1", text("Aside."), requestId="req_side"))
    run = read(tmp_path, lines)
    assert len(run.calls) == 2
    assert "Aside" not in run.trajectory.messages[1].content


def test_side_chains_in_the_file_are_not_the_conversation(tmp_path: Path) -> None:
    lines = session()
    lines.append(said("x1", "u1", text("Sub."), message="msg_7", isSidechain=True))
    assert len(read(tmp_path, lines).calls) == 2


def test_an_output_count_that_stayed_a_placeholder_is_estimated_and_said_so(tmp_path: Path) -> None:
    long = said("a5", "a4", text("word " * 50), message="msg_3", out=1)
    run = read(tmp_path, [*session(), user("u4", "a4", "More."), {**long, "parentUuid": "u4"}])
    assert run.calls[-1].completion_tokens == 50
    assert "1 output counts are placeholders" in run.notes[0]


def test_a_compaction_starts_a_new_root_and_takes_the_old_messages_out(tmp_path: Path) -> None:
    summary = user("u9", None, "Summary: a scale.", logicalParentUuid="a4", isCompactSummary=True)
    last = said("a9", "u9", text("Going on."), message="msg_5")
    run = read(tmp_path, [*session(), summary, last])
    assert len(run.calls) == 3
    gone = run.calls[-1].edits
    assert {e.message_index for e in gone} == {0, 1, 2, 3, 4}
    assert {e.part for e in gone} == {Part.DROPPED}


def test_a_torn_last_line_ends_nothing(tmp_path: Path) -> None:
    assert len(read(tmp_path, session(), torn='{"type": "assis').calls) == 2


def test_a_sub_agents_file_does_not_bill_its_parents_calls_again(tmp_path: Path) -> None:
    write_lines(tmp_path / "p" / "s.jsonl", session())
    own = said("z1", "a4", text("Mine."), message="msg_8")
    lines = [{**entry, "isSidechain": True} for entry in [*session(), own]]
    path = write_lines(tmp_path / "p" / "s" / "subagents" / "agent-1.jsonl", lines)
    run = run_from_claude_code(path, words, repeated_calls([path])[path])
    assert len(run.calls) == 1
    assert [c.prompt_tokens for c in run.repeated] == [124, 124]
    assert any("billed there" in note for note in run.notes)


def test_a_fork_repeats_its_parents_calls_and_bills_only_its_own(tmp_path: Path) -> None:
    """Each file was billed whole: two calls twice."""
    parent = write_lines(tmp_path / "p" / "a.jsonl", session())
    copied = [{**entry, "sessionId": "f", "forkedFrom": {"sessionId": "s"}} for entry in session()]
    own = said("f1", "a4", text("Another way."), message="msg_6")
    fork = write_lines(tmp_path / "p" / "b.jsonl", [*copied, own])
    elsewhere = repeated_calls([parent, fork])
    assert elsewhere == {parent: frozenset(), fork: frozenset({"msg_1", "msg_2"})}
    runs = [run_from_claude_code(path, words, elsewhere[path]) for path in (parent, fork)]
    assert [len(run.calls) for run in runs] == [2, 1]
    assert [c.message_count for c in runs[1].repeated] == [1, 4]
    assert len(runs[1].trajectory.messages) == 6


def test_a_fork_that_is_read_alone_is_billed_whole(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "b.jsonl", [{**e, "forkedFrom": {}} for e in session()])
    assert repeated_calls([path]) == {path: frozenset()}


def test_a_compactions_own_call_lies_in_a_file_beside_the_session(tmp_path: Path) -> None:
    write_lines(tmp_path / "p" / "s.jsonl", session())
    asked = user("c1", "a4", "Summarize.", isSidechain=True)
    own = said("c2", "c1", text("A scale."), message="msg_7", isSidechain=True)
    lines = [*({**entry, "isSidechain": True} for entry in session()), asked, own]
    path = write_lines(tmp_path / "p" / "s" / "subagents" / "agent-acompact-9.jsonl", lines)
    run = run_from_claude_code(path, words, repeated_calls([path])[path])
    assert [c.message_count for c in run.calls] == [6]
    assert len(run.repeated) == 2


def test_the_border_of_a_compaction_is_a_line_without_a_message(tmp_path: Path) -> None:
    """The path ended there, and what came before counted as another branch."""
    border = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "parentUuid": None,
        "logicalParentUuid": "a4",
        "sessionId": "s",
    }
    summary = user("u9", "b", "Summary: a scale.", isCompactSummary=True)
    run = read(tmp_path, [*session(), border, summary, said("a9", "u9", text("On."), message="m5")])
    assert [c.message_count for c in run.calls] == [1, 4, 6]
    assert run.aside == ()


def test_writes_for_five_minutes_and_for_an_hour_are_told_apart(tmp_path: Path) -> None:
    lines = session()
    split = {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15}
    for entry in lines:
        if entry["type"] == "assistant":
            entry["message"]["usage"]["cache_creation"] = split
    run = read(tmp_path, lines)
    assert {(c.cache_write_tokens, c.cache_write_1h_tokens) for c in run.calls} == {(20, 15)}
    assert run.notes == ()


def test_writes_without_that_split_are_known_as_such(tmp_path: Path) -> None:
    run = read(tmp_path, session())
    assert {c.cache_write_1h_tokens for c in run.calls} == {None}
    assert "cache writes of 2 calls without a lifetime" in run.notes[0]


def test_a_session_that_changes_its_model_says_so_call_by_call(tmp_path: Path) -> None:
    lines = session()
    lines[-1]["message"]["model"] = "small"
    run = read(tmp_path, lines)
    assert [c.served_model for c in run.calls] == ["m", "small"]


def test_pictures_beside_a_hidden_system_prompt_are_refused(tmp_path: Path) -> None:
    lines = session()
    lines[0] = user("u1", None, [text("See."), {"type": "image", "source": {}}])
    with pytest.raises(ValueError, match="weight is unknown"):
        read(tmp_path, lines)


def test_logs_are_found_by_content_and_named_by_their_task(tmp_path: Path) -> None:
    write_lines(tmp_path / "p" / "s.jsonl", session())
    write_lines(tmp_path / "p" / "other.jsonl", [{"rows": 1}])
    (path,) = trajectory_files(tmp_path)
    run = next(runs_in(path, words))
    assert (run.agent, run.agent_version, run.model) == ("claude-code", "2.0.1", "m")
    assert str(run.instance_id).startswith("mend_the_scale-")


def test_a_log_without_a_conversation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no conversation"):
        read(tmp_path, [{"type": "summary", "leafUuid": "x", "sessionId": "s"}])
