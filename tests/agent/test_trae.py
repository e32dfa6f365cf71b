"""The scaffold `trae`: its loop rules over HTTP, its tools in a real sandbox, its labels."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.agent.tool import Action, ToolResult
from pipeline.agent.trae.editor import CLIP_CHARS, EditorTool
from pipeline.agent.trae.scaffold import NOT_DONE
from pipeline.agent.trae.tools import NEEDS_RESTART, RESTARTED, RestartedBash, SequentialThinking
from pipeline.arms.clear_thinking import ClearThinking
from pipeline.arms.deletion import Deletion
from pipeline.arms.parameters import Parameters
from pipeline.protocols import Sandbox
from pipeline.records.failure import FailureClass
from pipeline.replaying.treatment import Verdict, treatment_of
from pipeline.sandbox.local import LocalSandboxes
from pipeline.shell.facts import kind_of
from pipeline.shell.kinds import Kind
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.commands import cut_commands
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Part, Trajectory
from tests.agent.rollouts import (
    FULL,
    PRUNE,
    agent_spec,
    contents,
    rebuilt,
    rollout,
    tool_names,
)
from tests.fakes import Message, WordCounter, bash, call, planctl, says, submits

EDITOR = "str_replace_based_edit_tool"
DONE = call("task_done")
CODE = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"


def edit(command: str, path: str = "/testbed/code.py", **more: Any) -> Message:
    return call(EDITOR, command=command, path=path, **more)


def repository(_row: Mapping[str, Any], folder: Path) -> None:
    (folder / "code.py").write_text(CODE)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "far").write_text("x")
    me = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("add", "."), (*me, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = LocalSandboxes(tmp_path / "root", repository).start({}, purpose="rollout")
    yield box
    box.stop()


def run(sandbox: Sandbox, *replies: Any, **more: Any):
    changes = more.pop("agent", {})
    agent = agent_spec("trae", **changes)
    return rollout(replies, agent=agent, sandbox=sandbox, **more)


def used(sandbox: Sandbox, **arguments: Any) -> ToolResult:
    """Return what the editor answers to arguments."""
    tool = EditorTool(timeout_s=20, asks_focus=False)
    return tool.run(Action(tool=EDITOR, command="", arguments=arguments), sandbox)


# --- the loop ------------------------------------------------------------------------------------
def test_what_was_changed_is_submitted_new_and_committed_files_included(sandbox: Sandbox):
    outcome, requests = run(
        sandbox,
        says("", edit("str_replace", old_str="def add(a, b):", new_str="def plus(a, b):")),
        says("", bash("git -c user.name=x -c user.email=x@x commit -qam mine")),
        says("", edit("create", "/testbed/new.py", file_text="x = 1\n")),
        says("", DONE),
    )  # fmt: skip
    assert outcome.failure_class is FailureClass.OK
    assert "+def plus(a, b):" in outcome.patch
    assert "+x = 1" in outcome.patch
    names = ["bash", EDITOR, "sequentialthinking", "task_done", "planctl"]
    assert tool_names(requests[0]) == names
    assert [r["messages"] for r in requests] == rebuilt(outcome)


def test_the_end_is_refused_while_nothing_was_changed(sandbox: Sandbox):
    outcome, requests = run(sandbox, says("", DONE), says("", bash("echo >> code.py"), DONE))
    assert contents(requests[1])[-1] == NOT_DONE["diff"]
    assert requests[1]["messages"][-1]["role"] == "user"
    assert outcome.failure_class is FailureClass.OK


@pytest.mark.parametrize("keeps", [True, False])
def test_reasoning_stays_in_the_history_or_is_dropped_from_it_as_the_agent_says(
    sandbox: Sandbox, keeps: bool
):
    outcome, requests = run(
        sandbox,
        says("One.", bash("ls"), reasoning="It is long."),
        says("Two.", bash("echo >> code.py"), reasoning="It is short."),
        says("", DONE),
        agent={"keeps_reasoning": keeps},
    )
    sent = [m.get("reasoning") for m in requests[2]["messages"] if m["role"] == "assistant"]
    assert sent == (["It is long.", "It is short."] if keeps else [None, None])
    assert [m.reasoning for m in outcome.messages if m.role == "assistant"][:2] == [
        "It is long.",
        "It is short.",
    ]
    assert [r["messages"] for r in requests] == rebuilt(outcome)


@pytest.mark.parametrize(
    "rule", [Deletion(scope="both", rate=1.0, reasoning_delay=0), ClearThinking(keep_turns=0)]
)
def test_reasoning_that_no_arm_sees_is_no_arms_deletion(sandbox: Sandbox, rule: Parameters):
    arm = ArmSpec(name="arm", policy=rule)
    script = [says("Text.", bash(f"ls {n}"), reasoning="Long.") for n in range(4)]
    outcome, _ = run(sandbox, *script, says("", bash("echo >> code.py"), DONE), arm=arm)
    made = [edit for call in outcome.calls for edit in call.edits]
    own = [edit for edit in made if edit.reason != "elide"]
    assert {edit.part for edit in made if edit.reason == "elide"} == {Part.REASONING}
    assert not [edit for edit in own if edit.part is Part.REASONING]
    history = Trajectory()
    history.append(outcome.messages)
    policy = policy_for(arm, seed=7, count_tokens=WordCounter(), context_length=10**6)
    moments = [call.message_count for call in outcome.calls]
    verdict = treatment_of(policy, history, moments, made).verdict
    assert verdict is (Verdict.TREATED if own else Verdict.NOT_TRIGGERED)


def test_an_agent_that_answers_gives_its_answer_with_the_last_call(sandbox: Sandbox):
    outcome, requests = run(
        sandbox,
        says("", call("task_done", answer=" ")),
        says("", call("task_done", answer="In café.py.")),
        agent={"submit": "answer"},
    )
    done = next(t for t in requests[0]["tools"] if t["function"]["name"] == "task_done")
    assert done["function"]["parameters"]["required"] == ["answer"]
    assert contents(requests[1])[-1] == NOT_DONE["answer"]
    assert (outcome.answer, outcome.patch) == ("In café.py.", "")
    assert outcome.failure_class is FailureClass.OK


def test_a_reply_without_a_call_stays_in_the_history_and_is_answered(sandbox: Sandbox):
    _, requests = run(sandbox, says("I think."), says("", bash("echo >> code.py"), DONE))
    assert [m["role"] for m in requests[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert "no tool call" in contents(requests[1])[-1]


def test_unreadable_arguments_enter_no_history_and_end_the_run_when_they_repeat(sandbox: Sandbox):
    bad = says("", {"type": "function", "function": {"name": "bash", "arguments": "{"}})
    outcome, requests = run(sandbox, bad, bad, bad)
    assert outcome.failure_class is FailureClass.LIMIT_FORMAT
    assert [m["role"] for m in requests[1]["messages"]] == ["system", "user", "user"]
    assert len(requests) == 3


def test_limits_are_the_sessions_and_the_diff_until_then_is_kept_aside(sandbox: Sandbox):
    answers = [says("", bash("echo '# more' >> code.py")) for _ in range(2)]
    outcome, _ = run(sandbox, *answers, agent={"step_limit": 2})
    assert outcome.failure_class is FailureClass.LIMIT_STEPS
    assert "+# more" in (outcome.limit_patch or "")


def test_arms_prune_on_it_as_on_any_scaffold(sandbox: Sandbox):
    outcome, requests = run(
        sandbox,
        says("", planctl("set", steps=["a", "b"]), planctl("start", step=1)),
        says("", edit("view")),
        says("", planctl("complete", outcome="read"), bash("ls")),
        says("", call("prune_observations", ids=[1])),
        says("", bash("echo >> code.py")),
        says("", DONE),
        arm=PRUNE,
    )
    assert "def add" in "".join(contents(requests[3]))
    assert "def add" not in "".join(contents(requests[4])[2:])
    assert outcome.failure_class is FailureClass.OK


def test_mini_too_submits_its_diff_where_that_is_asked(sandbox: Sandbox):
    script = [says("", bash("echo '# x' >> code.py")), submits("true")]
    outcome, _ = rollout(script, arm=FULL, agent=agent_spec(submit="diff"), sandbox=sandbox)
    assert outcome.failure_class is FailureClass.OK
    assert "+# x" in outcome.patch


# --- the tools -----------------------------------------------------------------------------------
def test_a_file_is_viewed_with_line_numbers_whole_or_in_part(sandbox: Sandbox):
    whole = used(sandbox, command="view", path="/testbed/code.py").output
    assert whole.startswith("     1\tdef add(a, b):\n     2\t    return a - b\n")
    part = used(sandbox, command="view", path="/testbed/code.py", view_range=[5, -1]).output
    assert part.splitlines()[:2] == ["     5\tdef sub(a, b):", "     6\t    return a - b"]


def test_a_folder_is_viewed_two_levels_deep(sandbox: Sandbox):
    listed = used(sandbox, command="view", path="/testbed").output.split()
    assert listed == ["/testbed", "/testbed/code.py", "/testbed/deep", "/testbed/deep/er"]


@pytest.mark.parametrize(
    ("arguments", "says_why"),
    [
        ({"command": "view", "path": "code.py"}, "/testbed/code.py may be it"),
        ({"command": "view", "path": "/testbed/gone"}, "there is no file /testbed/gone"),
        ({"command": "view", "path": "/testbed/code.py", "view_range": [3, 99]}, "lines 1 to 7"),
        ({"command": "view", "path": "/testbed/code.py", "view_range": [3, 2]}, "lines 1 to 7"),
        ({"command": "view", "path": "/testbed/code.py", "view_range": [0, 2]}, "lines 1 to 7"),
        ({"command": "view", "path": "/testbed/code.py", "view_range": "1-2"}, "two line numbers"),
        ({"command": "view", "path": "/testbed", "view_range": [1, 2]}, "is for files"),
        ({"command": "create", "path": "/testbed/code.py", "file_text": ""}, "exists already"),
        ({"command": "create", "path": "/testbed/n"}, "`file_text` must be given"),
        ({"command": "str_replace", "path": "/testbed/code.py", "old_str": "a - b"}, "2 times"),
        ({"command": "str_replace", "path": "/testbed/code.py", "old_str": "z"}, "0 times"),
        ({"command": "str_replace", "path": "/testbed/deep", "old_str": "z"}, "is a folder"),
        (
            {"command": "insert", "path": "/testbed/code.py", "insert_line": 9, "new_str": ""},
            "from 0 to 7",
        ),
        ({"command": "undo", "path": "/testbed/code.py"}, "no command 'undo'"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_says_why(
    sandbox: Sandbox, arguments: dict[str, Any], says_why: str
):
    result = used(sandbox, **arguments)
    assert result.returncode == 1
    assert says_why in result.output
    assert sandbox.execute("git status --porcelain", timeout_s=20).output == ""


def test_edits_show_the_lines_around_them(sandbox: Sandbox):
    inserted = used(
        sandbox, command="insert", path="/testbed/code.py", insert_line=0, new_str="import os\n"
    )
    assert "     1\timport os\n     2\t\n     3\tdef add" in inserted.output
    assert sandbox.download("/testbed/code.py", limit_bytes=999).startswith(b"import os\n\ndef add")


def test_bytes_that_are_no_utf8_survive_an_edit(sandbox: Sandbox):
    sandbox.upload(b"caf\xe9 = 1\nb = 2\n", "latin.py")
    used(sandbox, command="str_replace", path="/testbed/latin.py", old_str="b = 2", new_str="b = 3")
    assert sandbox.download("/testbed/latin.py", limit_bytes=99) == b"caf\xe9 = 1\nb = 3\n"


@pytest.mark.parametrize(
    ("path", "says_why"),
    [
        ("/testbed/code.py/x", "cannot upload"),
        ("/proc/none", "cannot upload"),
        ("/testbed/new/", "cannot upload"),
        ("/testbed/a\0b", "no NUL"),
    ],
)
def test_a_path_that_nobody_can_write_is_the_models_error_and_not_ours(
    sandbox: Sandbox, path: str, says_why: str
):
    """It once broke the run as a failure of the sandbox, which is tried again and again."""
    result = used(sandbox, command="create", path=path, file_text="x")
    assert result.returncode == 1
    assert says_why in result.output


def test_a_file_that_is_no_text_is_not_shown_and_one_in_another_encoding_is(sandbox: Sandbox):
    """Its bytes once reached the request, which could not be encoded."""
    sandbox.upload(b"a\0b", "/testbed/binary")
    assert "no text file" in used(sandbox, command="view", path="/testbed/binary").output
    sandbox.upload(b"caf\xe9\n", "/testbed/latin")
    outcome, requests = run(
        sandbox, says("", edit("view", "/testbed/latin")), says("", bash("echo > n"), DONE)
    )
    assert contents(requests[1])[-1] == "     1\tcaf\ufffd\n     2\t\n"
    assert outcome.failure_class is FailureClass.OK


def test_paths_with_spaces_and_links_are_paths(sandbox: Sandbox):
    used(sandbox, command="create", path="/testbed/a b/c'd.py", file_text="x = 1\n")
    listed = used(sandbox, command="view", path="/testbed/a b").output
    assert listed == "/testbed/a b\n/testbed/a b/c'd.py\n"
    sandbox.execute("ln -s code.py link", timeout_s=20)
    used(sandbox, command="insert", path="/testbed/link", insert_line=0, new_str="# top")
    assert sandbox.download("code.py", limit_bytes=99).startswith(b"# top\ndef add")


def test_long_text_is_clipped(sandbox: Sandbox):
    sandbox.upload(b"line\n" * 9000, "long")
    output = used(sandbox, command="view", path="/testbed/long").output
    assert output.splitlines()[-2:] == ["  3201\t", "[clipped: 29000 more characters]"]
    outcome, _ = run(sandbox, says("", bash("cat long")), says("", bash("echo > n"), DONE))
    shown = next(m for m in outcome.messages if m.tool == "bash")
    assert len(shown.content) < CLIP_CHARS + 60
    assert (shown.output, shown.output_start) == ("line\n" * 9000, None)


def test_after_a_timeout_the_shell_must_be_restarted(sandbox: Sandbox):
    tool = RestartedBash(timeout_s=0.3, asks_focus=False)

    def said(**arguments: Any) -> str:
        action = Action(tool="bash", command=arguments.get("command", ""), arguments=arguments)
        return tool.run(action, sandbox).output

    said(command="sleep 9")
    assert said(command="echo one") == NEEDS_RESTART
    assert said(restart=True) == RESTARTED
    assert said(command="echo two") == "two\n"


def test_a_thought_is_noted_and_not_repeated(sandbox: Sandbox):
    tool = SequentialThinking()

    def noted(**arguments: Any) -> ToolResult:
        return tool.run(Action(tool=tool.name, command="", arguments=arguments), sandbox)

    first = {"thought": "long", "thought_number": 3, "total_thoughts": 2}
    assert json.loads(noted(**first, next_thought_needed=True).output) == {
        "thought_number": 3,
        "total_thoughts": 3,
        "next_thought_needed": True,
        "branches": [],
        "thought_history_length": 1,
    }
    assert noted(**first).returncode == 1
    assert "next_thought_needed" in noted(**first).output


# --- labels --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"command": "view", "path": "/testbed/a b.py"}, Kind.READ),
        ({"command": "view", "path": "/testbed/a.py", "view_range": [1, 20]}, Kind.READ),
        ({"command": "create", "path": "/testbed/a.py", "file_text": "cat x\n"}, Kind.WRITE),
        ({"command": "str_replace", "path": "/a", "old_str": "'", "new_str": '"'}, Kind.WRITE),
        ({"command": "insert", "path": "/a", "insert_line": 3, "new_str": "rm -r"}, Kind.WRITE),
    ],
)  # fmt: skip
def test_a_call_of_the_editor_is_labelled_as_what_it_does(arguments: dict[str, Any], kind: Kind):
    requested = RequestedToolCall(id="c", name=EDITOR, arguments=json.dumps(arguments))
    tool = EditorTool(timeout_s=1, asks_focus=False)
    command = tool.as_command(arguments, requested)
    assert kind_of(command) is kind


def test_an_arm_that_cuts_commands_leaves_the_editors_arguments_alone(sandbox: Sandbox):
    """They once became those of a shell: the editor's `command` is the name of what it does."""
    outcome, _ = run(
        sandbox,
        says("", edit("create", "/testbed/n.py", file_text="x\n"), bash("cat > m <<'E'\ny\nE")),
        says("", bash("rm n.py m"), bash("echo >> code.py"), DONE),
    )
    history = Trajectory()
    history.append(outcome.messages)
    turn = history.turns[0]
    shorter = {m.index: "cut" for m in turn.observations}
    found = cut_commands(turn, {}, shorter, "test")
    assert found is not None
    created, written = json.loads(found.text)
    assert json.loads(created["function"]["arguments"])["file_text"] == "x\n"
    assert json.loads(written["function"]["arguments"]) == {"command": "cut"}
