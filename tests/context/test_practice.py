"""The arms dedup, purge_errors, supersede_writes, discard_anytime, recall.

See docs/methods.md, What people run.
"""

import json

import pytest

from pipeline.shell.files import read_by, same_file, written_by
from pipeline.views.recall_tool import recalled_text
from pipeline.views.trajectory import Part
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands, shown
from tests.context.scripts import Act, Round, planctl, prunes, read, rounds, set_plan

BODY = "\n".join(f"x{k} = {k}" for k in range(20))
WRITE = Act(command=f"cat > src/new.py <<'EOF'\n{BODY}\nEOF")
FAILED = Act(command="python -m pytest tests/test_a.py -k a_long_name", output="E", returncode=1)


def command_shown(result: object, index: int) -> str:
    edit = result.standing[index, Part.TOOL_CALLS]  # type: ignore[attr-defined]
    return str(json.loads(json.loads(edit.text)[0]["function"]["arguments"])["command"])


# --- dedup ---------------------------------------------------------------------------------------
def test_of_a_repeated_command_only_the_newest_output_stays() -> None:
    result = ran(arm("dedup"), rounds(read("a.py"), read("b.py"), read("a.py"), read("a.py")))
    assert [e.message_index for e in result.edits("dedup")] == [3, 7]


def test_dedup_protects_the_newest_turns_and_file_patterns() -> None:
    twice = Round(acts=(read("a.py"), read("a.py")))
    assert ran(arm("dedup"), [twice]).standing == {}
    script = rounds(read("docs/a.md"), read("docs/a.md"), read("b.py"))
    assert ran(arm("dedup", protect_files=["*.md"]), script).standing == {}


def test_dedup_leaves_plan_results() -> None:
    assert ran(arm("dedup"), rounds(planctl(), planctl(), read("a.py"))).standing == {}


# --- purge_errors --------------------------------------------------------------------------------
def test_the_command_of_a_call_that_failed_more_than_four_turns_ago_is_cut() -> None:
    script = rounds(FAILED, *[read(f"{k}.py") for k in range(5)])
    result = ran(arm("purge_errors"), script)
    assert command_shown(result, 2) == "[Command of a failed call omitted.]"
    assert shown(result)[3] == "E"
    assert ran(arm("purge_errors"), script[:-1]).standing == {}


def test_only_failed_calls_of_a_parallel_turn_are_cut() -> None:
    script = [Round(acts=(read("a.py"), FAILED)), *rounds(*[read(f"{k}.py") for k in range(5)])]
    edit = ran(arm("purge_errors"), script).standing[2, Part.TOOL_CALLS]
    calls = json.loads(edit.text)
    assert [c["id"] for c in calls] == ["call_1_0", "call_1_1"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"command": "cat a.py"}


def test_in_text_mode_the_command_is_cut_out_of_the_text() -> None:
    script = rounds(FAILED, *[read(f"{k}.py") for k in range(5)])
    text = shown(ran(arm("purge_errors"), script, text_mode=True))[2]
    assert "pytest" not in text
    assert "[Command of a failed call omitted.]" in text


# --- supersede_writes ----------------------------------------------------------------------------
def test_a_written_body_is_cut_once_the_file_has_been_read_again() -> None:
    script = rounds(WRITE, read("b.py"), read("src/new.py"))
    result = ran(arm("supersede_writes"), script)
    command = command_shown(result, 2)
    assert command.startswith("cat > src/new.py <<'EOF'\n[Content omitted")
    assert command.endswith("\nEOF")
    assert ran(arm("supersede_writes"), script[:-1]).standing == {}


def test_a_failed_read_supersedes_nothing() -> None:
    missing = Act(command="cat src/new.py", output="No such file", returncode=1)
    assert ran(arm("supersede_writes"), rounds(WRITE, missing)).standing == {}


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (f"cat <<EOF > a/b.py\n{BODY}\nEOF", "a/b.py"),
        (f"cd x && tee b.py <<-'END' >/dev/null\n{BODY}\nEND\npython b.py", "b.py"),
        (f"python - <<'PY'\nopen('c.py', 'w').write('''{BODY}''')\nPY", "c.py"),
        ("sed -i 's/a long pattern/a long replacement/g' pkg/d.py", "pkg/d.py"),
        ("cat a.py", None),
        ("python - <<'PY'\nprint(1)\nPY", None),
    ],
)
def test_what_a_command_writes(command: str, path: str | None) -> None:
    assert [w.path for w in written_by(command)] == ([] if path is None else [path])


def test_what_a_command_reads() -> None:
    assert "a.py" in read_by("cd src && cat a.py | head -5")
    assert "a.py" in read_by("sed -n '1,5p' a.py")
    assert not read_by("sed -i 's/a/b/' a.py")
    assert not read_by("python a.py")
    assert same_file("src/a.py", "/testbed/src/a.py")
    assert not same_file("src/a.py", "src/aa.py")


# --- discard_anytime -----------------------------------------------------------------------------
def own(ids: list[int]) -> Act:
    return Act(command=json.dumps({"ids": ids}), output="noted", tool="prune_observations")


def test_the_model_may_prune_at_any_time_and_there_is_no_cleanup_turn() -> None:
    script = rounds(set_plan(2), read("a.py"), read("b.py"), own([1]), planctl(("complete", 1)))
    result = ran(arm("discard_anytime"), script)
    assert removed_commands(result, "prune") == ["cat a.py"]


def test_outputs_carry_their_ids_from_the_start() -> None:
    result = ran(arm("discard_anytime"), rounds(read("a.py"), set_plan(1), read("b.py")))
    assert shown(result)[3].startswith("[output 1]\na.py:0")
    assert shown(result)[7].startswith("[output 2]\nb.py:0")
    assert shown(result)[5] == "plan"


def test_there_is_a_nudge_every_ten_tool_results() -> None:
    result = ran(arm("discard_anytime"), rounds(*[read(f"{k}.py") for k in range(25)]))
    nudged = [
        k for k, text in enumerate(shown(result)[3::2], start=1) if "tool results by now" in text
    ]
    assert nudged == [10, 20]


# --- recall --------------------------------------------------------------------------------------
def test_a_recalled_output_comes_back_as_a_result_and_its_place_stays_pruned() -> None:
    script = rounds(set_plan(2), read("a.py"), read("b.py"), planctl(("complete", 1)))
    result = ran(arm("plan_prune_recall"), script, prunes(1))
    assert shown(result)[5] == "[Earlier command output omitted.] recall(id=1) shows it again."
    text = recalled_text('{"id": 1}', result.trajectory, result.standing)
    assert text == result.trajectory.messages[5].content
    assert "still shown" in recalled_text('{"id": 2}', result.trajectory, result.standing)
    for bad in ('{"id": 9}', "{", '{"id": true}', "[]", "recall"):
        assert "one of: 1" in recalled_text(bad, result.trajectory, result.standing)
    assert recalled_text("recall 1", result.trajectory) == text


def test_in_text_mode_the_placeholder_says_the_line_that_recalls() -> None:
    script = rounds(set_plan(2), read("a.py"), read("b.py"), planctl(("complete", 1)))
    pruning = ran(arm("plan_prune_recall"), script, prunes(1), text_mode=True)
    assert shown(pruning)[5] == "[Earlier command output omitted.] `recall 1` shows it again."


def test_tools_answer_in_ordinary_turns_only_where_the_arm_says_so() -> None:
    history = ran(arm("full_history"), rounds(read("a.py"))).trajectory
    for name, may in (("plan_prune", False), ("every_k", False), ("discard_anytime", True)):
        (tool,) = arm(name).policy.tools
        assert tool.answer(history, '{"ids": [1]}').is_error is not may
    _, recall = arm("plan_prune_recall").policy.tools
    assert recall.answer(history, '{"id": 1}').text == history.messages[3].content
