"""What calls of Trae's tools are, against labels that were made by hand for 60 of them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.agent.trae.scaffold import TraeScaffold
from pipeline.arms.deletion import Deletion
from pipeline.shell.facts import facts_of
from pipeline.shell.files import read_by, same_file, written_by
from pipeline.shell.lines import output_lines
from pipeline.shell.refetch import brings_back
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Part
from tests.agent.rollouts import agent_spec
from tests.context.arms import arm
from tests.context.driving import ran, shown
from tests.context.scripts import Act, Round, planctl, prunes, rounds, set_plan

DONE_1 = planctl(("complete", 1), ("start", 2), output="step 1 done")
EDITOR, THINK = "str_replace_based_edit_tool", "sequentialthinking"
TOOLS = {tool.name: tool for tool in TraeScaffold(agent_spec("trae")).tools(asks_focus=False)}
FILES = ("/testbed/src/rules.py", "/testbed/tests/test_rules.py", "/testbed/a b/c'd.py")
BODY = "".join(f"def rule_{n}(text):\n    return text.count('{n}') > {n}\n\n\n" for n in range(6))


def view(path: str, *lines: int) -> tuple[str, dict[str, Any]]:
    more: dict[str, Any] = {"view_range": list(lines)} if lines else {}
    return EDITOR, {"command": "view", "path": path, **more}


def create(path: str, text: str = BODY) -> tuple[str, dict[str, Any]]:
    return EDITOR, {"command": "create", "path": path, "file_text": text}


def replace(path: str, old: str, new: str | None = None) -> tuple[str, dict[str, Any]]:
    more = {} if new is None else {"new_str": new}
    return EDITOR, {"command": "str_replace", "path": path, "old_str": old, **more}


def insert(path: str, line: int, text: str) -> tuple[str, dict[str, Any]]:
    return EDITOR, {"command": "insert", "path": path, "insert_line": line, "new_str": text}


def think(text: str, number: int = 1) -> tuple[str, dict[str, Any]]:
    return THINK, {
        "thought": text,
        "next_thought_needed": True,
        "thought_number": number,
        "total_thoughts": 5,
    }


def sh(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, **more}


Call = tuple[str, dict[str, Any]]
R, T, C = FILES
LABELS: list[tuple[Call, str]] = [
    (view("/testbed"), "search"),
    (view("/testbed/src"), "search"),
    (view("/testbed/src/"), "search"),
    (view("/testbed/tests"), "search"),
    (view("/testbed/docs/source"), "search"),
    (view("/testbed/README"), "read"),
    (view("/testbed/Makefile"), "read"),
    (view("/testbed/setup.cfg"), "read"),
    (view(R), "read"),
    (view(R, 1, 40), "read"),
    (view(R, 120, -1), "read"),
    (view(T), "read"),
    (view(T, 10, 30), "read"),
    (view(C), "read"),
    (view(C, 1, 5), "read"),
    (view("/testbed/bin/run", 1, 9), "read"),
    (create("/testbed/repro.py"), "write"),
    (create("/testbed/repro.py", "print(open('src/rules.py').read())\n"), "write"),
    (
        create("/testbed/tests/test_new.py", "import pytest\n\ndef test_a():\n    assert 1\n"),
        "write",
    ),
    (create("/testbed/run.sh", "cat src/rules.py\npytest -q\n"), "write"),
    (create("/testbed/notes.md", "git log\ngrep -rn rule .\n"), "write"),
    (create(C, "x = '\"'\n"), "write"),
    (create("/testbed/empty.py", ""), "write"),
    (replace(R, "return a - b", "return a + b"), "write"),
    (replace(R, "import os\n"), "write"),
    (replace(R, "x", ""), "write"),
    (replace(R, "cat a.py | head", "pytest -x"), "write"),
    (replace(T, "it's", 'it is "so"'), "write"),
    (replace(C, "a\n\tb", "a\n\tc"), "write"),
    (replace(R, "<<'EOF'\nx\nEOF", "<<'EOF'\ny\nEOF"), "write"),
    (replace(R, "$(rm -r /)", "`ls`"), "write"),
    (insert(R, 0, "import re\n"), "write"),
    (insert(R, 12, "    # view /testbed/a.py"), "write"),
    (insert(T, 3, "def test_b():\n    assert cat('x')\n"), "write"),
    (insert(C, 1, "'''"), "write"),
    (think("I should read src/rules.py and run pytest."), "other"),
    (think("cat src/rules.py"), "other"),
    (think('It\'s the `strip` call; "rstrip" is right.', 2), "other"),
    (think("1. grep -rn rule .\n2. sed -i s/a/b/ x\n3. git diff", 3), "other"),
    (think("{unbalanced ( [ '"), "other"),
    (think(""), "other"),
    (("task_done", {}), "submit"),
    (("task_done", {"answer": "cat a.py"}), "submit"),
    (sh("", restart=True), "other"),
    (sh("ls", restart=True), "other"),
    (sh("cat src/rules.py"), "read"),
    (sh("cd /testbed && sed -n '1,40p' src/rules.py"), "read"),
    (sh("grep -rn 'def rule' src"), "search"),
    (sh("find . -name '*.py' | head"), "search"),
    (sh("ls -la"), "search"),
    (sh("git log --oneline -3"), "history"),
    (sh("git diff"), "history"),
    (sh("python repro.py"), "run"),
    (sh("python -m pytest -q tests/test_rules.py"), "test"),
    (sh("cd /testbed && pytest -x 2>&1 | tail -5"), "test"),
    (sh("pip list"), "environment"),
    (sh("rm repro.py"), "write"),
    (sh("cat > x.py <<'EOF'\nx = 1\nEOF"), "write"),
    (sh("sed -i 's/a/b/' src/rules.py"), "write"),
    (sh("git checkout -- src/rules.py"), "write"),
]


def command(call: Call) -> str:
    name, arguments = call
    requested = RequestedToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return TOOLS[name].as_command(arguments, requested)


def act(call: Call, output: str = "done\n", returncode: int = 0) -> Act:
    return Act(command=command(call), output=output, returncode=returncode, tool=call[0],
               arguments=call[1])  # fmt: skip


def numbered(text: str) -> str:
    return "".join(f"{n:6}\t{line}\n" for n, line in enumerate(text.split("\n"), 1))


def test_there_are_sixty():
    assert len(LABELS) == 60


@pytest.mark.parametrize(("call", "kind"), LABELS, ids=lambda x: str(x)[:70])
def test_a_call_is_what_a_person_says_it_is(call: Call, kind: str):
    assert facts_of(command(call)).kind == kind


@pytest.mark.parametrize(("call", "kind"), LABELS, ids=lambda x: str(x)[:70])
def test_a_calls_file_is_read_or_written_as_a_person_says(call: Call, kind: str):
    name, arguments = call
    if name != EDITOR:
        return
    text, path = command(call), arguments["path"]
    reads = kind in ("read", "search")
    assert any(same_file(path, word) for word in read_by(text)) == (
        reads and not set(path) & set(" '")
    )
    bodies = [arguments[key] for key in ("file_text", "old_str", "new_str") if key in arguments]
    quoted = {text[w.start : w.end].replace("'\"'\"'", "'") for w in written_by(text)}
    assert {w.path for w in written_by(text)} <= {path}
    assert {body for body in bodies if "\n" in body} <= quoted <= set(bodies)


def test_a_view_brings_back_what_another_view_or_a_shell_showed():
    source = BODY.split("\n")
    whole = output_lines(command(view(R)), numbered(BODY))
    part = "".join(f"{n:6}\t{source[n - 1]}\n" for n in range(5, 15))
    assert brings_back(command(view(R, 5, 14)), part, whole)
    assert brings_back(command(sh("sed -n 5,14p src/rules.py")), "\n".join(source[4:14]), whole)
    assert not brings_back(command(replace(R, "a", "b")), part, whole)
    assert not brings_back(command(think("I have seen it.")), part, whole)


# --- arms ----------------------------------------------------------------------------------------
def arguments_shown(result: Any, index: int, place: int = 0) -> Mapping[str, Any]:
    calls = json.loads(result.standing[index, Part.TOOL_CALLS].text)
    found: dict[str, Any] = json.loads(calls[place]["function"]["arguments"])
    return found


def test_dedup_keeps_the_newest_of_the_same_view():
    script = rounds(act(view(R)), act(view(R, 1, 9)), act(view(R)), act(view(T)))
    assert [e.message_index for e in ran(arm("dedup"), script).edits("dedup")] == [3]


def test_what_the_editor_wrote_is_cut_once_the_file_is_viewed_again():
    script = rounds(act(create(R)), act(view(T)), act(view(R, 1, 9)), act(view(T)))
    cut = arguments_shown(ran(arm("supersede_writes"), script), 2)
    assert cut == {"command": "create", "path": R,
                   "file_text": "[Content omitted; the file was read again later.]"}  # fmt: skip


def test_an_edit_keeps_what_is_short_and_its_line():
    script = rounds(act(insert(R, 3, BODY)), act(view(R)), act(view(T)))
    cut = arguments_shown(ran(arm("supersede_writes"), script), 2)
    assert (cut["command"], cut["path"], cut["insert_line"]) == ("insert", R, 3)
    assert cut["new_str"].startswith("[Content omitted")


def test_the_texts_of_an_edit_that_failed_are_cut_and_its_file_stays():
    failed = act(replace(R, BODY, "x"), "Nothing was done", returncode=1)
    script = rounds(failed, *[act(view(T, 1, n)) for n in range(2, 7)])
    cut = arguments_shown(ran(arm("purge_errors"), script), 2)
    assert cut == {"command": "str_replace", "path": R, "new_str": "x",
                   "old_str": "[Command of a failed call omitted.]"}  # fmt: skip


@pytest.mark.parametrize("scope", ["reasoning", "output", "both"])
def test_a_thought_is_reasoning_to_a_deletion(scope: str):
    turns = [Round(acts=(act(think("A long thought.")), act(view(R), "shown"))) for _ in range(3)]
    result = ran(arm("deletion", scope=scope, rate=1.0), turns)
    cut = (2, Part.TOOL_CALLS) in result.standing
    assert cut == (scope != "output")
    if cut:
        assert arguments_shown(result, 2)["thought"] == ""
        assert arguments_shown(result, 2)["thought_number"] == 1
        assert arguments_shown(result, 2, 1) == view(R)[1]
    assert (shown(result)[4] == "shown") == (scope == "reasoning")


def test_a_share_of_a_thoughts_tokens_is_deleted():
    words = " ".join(f"w{n}" for n in range(20))
    turns = [Round(acts=(act(think(words)),)) for _ in range(3)]
    spec = {"scope": "reasoning", "unit": "token", "rate": 0.5}
    left = arguments_shown(ran(arm("deletion", **spec), turns), 2)["thought"].split()
    assert len(left) == 10
    assert set(left) < set(words.split())
    assert Deletion(**spec).rate == 0.5


OUTPUT = "a line of the output\n" * 20


def test_the_thoughts_of_a_finished_step_go_with_its_reasoning():
    script = rounds(set_plan(2), act(think("Long.")), act(view(R), OUTPUT), DONE_1, act(view(T)))
    result = ran(arm("plan_prune_reasoning"), script, prunes(1))
    assert arguments_shown(result, 4)["thought"] == ""


def test_a_cleanup_lists_a_view_with_its_file_and_a_written_file_shortly():
    script = rounds(set_plan(2), act(view(R), OUTPUT), act(create(T), OUTPUT), DONE_1)
    (request,) = ran(arm("plan_prune"), script, prunes(1)).requests
    listing = request.edits[-1].text
    assert f"· view {R}" in listing
    assert f"· create {T}" in listing
    assert "rule_5" not in listing
