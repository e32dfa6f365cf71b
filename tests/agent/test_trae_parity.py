"""Our tools of Trae agent beside its own, from a checkout that the user has: TRAE_CHECKOUT=FOLDER.

Words differ, since ours are our own. What is compared is the schemas' parameters, whether a call is
refused, the lines that are shown, and the files that are left.
"""

import asyncio
import gc
import importlib
import json
import os
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipeline.agent.prompts import rendered
from pipeline.agent.tool import Action
from pipeline.agent.trae.scaffold import TraeScaffold
from pipeline.planning.prompts_from import with_prompts
from pipeline.protocols import Sandbox
from pipeline.sandbox.local import LocalSandboxes
from tests.agent.rollouts import agent_spec

CHECKOUT = Path(os.environ.get("TRAE_CHECKOUT", ".cache/trae-agent"))
pytestmark = [
    pytest.mark.skipif(
        not (CHECKOUT / "trae_agent" / "tools").is_dir(),
        reason="no checkout of Trae agent: git clone it, and say TRAE_CHECKOUT=FOLDER",
    ),
    # Their shell leaves its pipes to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

EDITOR = "str_replace_based_edit_tool"
CLASSES = {
    "bash": ("bash_tool", "BashTool"),
    EDITOR: ("edit_tool", "TextEditorTool"),
    "sequentialthinking": ("sequential_thinking_tool", "SequentialThinkingTool"),
    "task_done": ("task_done_tool", "TaskDoneTool"),
}
TEXT = "import os\n\n\ndef add(a, b):\n\treturn a - b\n\n\ndef sub(a, b):\n\treturn a - b\n"
LONG = "".join(f"line {n} of a long file\n" for n in range(2000))


@pytest.fixture(scope="module")
def theirs() -> Iterator[Mapping[str, Any]]:
    """Their tools, without their package's other dependencies (`__init__` would load them)."""
    if not hasattr(typing, "override"):  # Python 3.12
        typing.override = lambda method: method  # type: ignore[attr-defined]
    stubs = {}
    for name in ("trae_agent", "trae_agent.tools"):
        stubs[name] = ModuleType(name)
        stubs[name].__path__ = [str(CHECKOUT / name.replace(".", "/"))]
    sys.modules.update(stubs)
    yield {
        name: getattr(importlib.import_module(f"trae_agent.tools.{module}"), cls)()
        for name, (module, cls) in CLASSES.items()
    }
    for name in [name for name in sys.modules if name.split(".")[0] == "trae_agent"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def ours() -> Mapping[str, Any]:
    tools = TraeScaffold(agent_spec("trae")).tools(asks_focus=False)
    return {tool.name: tool for tool in tools}


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Sandbox, Path]]:
    """The same files in a sandbox and on this machine."""

    def materialise(_row: Any, folder: Path) -> None:
        (folder / "deep" / "er" / "most").mkdir(parents=True)
        (folder / ".hidden").write_text("")
        (folder / "code.py").write_text(TEXT)
        (folder / "long").write_text(LONG)
        (folder / "empty").write_text("")

    there = tmp_path / "there"
    there.mkdir()
    materialise(None, there)
    box = LocalSandboxes(tmp_path / "root", materialise).start({}, purpose="rollout")
    yield box, there
    box.stop()


def shape(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without its words."""
    properties = {
        name: {key: value for key, value in given.items() if key != "description"}
        for name, given in parameters.get("properties", {}).items()
    }
    return {"properties": properties, "required": sorted(parameters.get("required", []))}


@pytest.mark.parametrize("name", CLASSES)
def test_a_tool_takes_the_parameters_that_theirs_takes(ours: Any, theirs: Any, name: str):
    mine = shape(ours[name].schema["function"]["parameters"])
    yours = shape(theirs[name].get_input_schema())
    assert mine["properties"] == yours["properties"]
    # Theirs calls optional parameters required; ours requires what a call cannot do without.
    assert set(mine["required"]) <= set(yours["required"])


def lines_shown(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r" *\d+\t", line)]


EDITS: list[dict[str, Any]] = [
    {"command": "view", "path": "code.py"},
    {"command": "view", "path": "empty"},
    *({"command": "view", "path": "code.py", "view_range": r} for r in
      ([4, 5], [8, -1], [1, 10], [10, 10], [0, 3], [3, 2], [3, 11], [11, 11], [1, 2, 3], [-1, 2])),
    {"command": "view", "path": "gone"},
    {"command": "view", "path": ".", "view_range": [1, 2]},
    {"command": "create", "path": "new.py", "file_text": "x\t= 1\n"},
    {"command": "create", "path": "code.py", "file_text": "x"},
    {"command": "create", "path": "deep", "file_text": "x"},
    {"command": "create", "path": "other"},
    {"command": "str_replace", "path": "code.py", "old_str": "def add(a, b):\n\treturn a - b",
     "new_str": "def add(a, b):\n\tc = a + b\n\treturn c"},
    {"command": "str_replace", "path": "code.py", "old_str": "import os\n"},
    {"command": "str_replace", "path": "code.py", "old_str": "return a - b", "new_str": "x"},
    {"command": "str_replace", "path": "code.py", "old_str": "nothing", "new_str": "x"},
    {"command": "str_replace", "path": "code.py", "new_str": "x"},
    {"command": "str_replace", "path": "code.py", "old_str": "import os\n", "new_str": None,
     "view_range": None, "file_text": None, "insert_line": None},
    {"command": "view", "path": "code.py", "view_range": None, "old_str": None, "new_str": None},
    {"command": "str_replace", "path": "deep", "old_str": "a", "new_str": "x"},
    {"command": "insert", "path": "code.py", "insert_line": 0, "new_str": "# top\n"},
    {"command": "insert", "path": "code.py", "insert_line": 5, "new_str": "# between\n# two"},
    {"command": "insert", "path": "code.py", "insert_line": 10, "new_str": "# end"},
    {"command": "insert", "path": "code.py", "insert_line": 11, "new_str": "# beyond"},
    {"command": "insert", "path": "code.py", "insert_line": -1, "new_str": "# before"},
    {"command": "insert", "path": "code.py", "insert_line": 1},
    {"command": "undo_edit", "path": "code.py"},
]  # fmt: skip


@pytest.mark.parametrize("arguments", EDITS, ids=lambda a: " ".join(map(str, a.values())))
def test_the_editor_refuses_shows_and_writes_what_theirs_does(
    ours: Any, theirs: Any, folders: tuple[Sandbox, Path], arguments: dict[str, Any]
):
    box, there = folders
    asked, path = dict(arguments), arguments["path"]
    at_theirs = asyncio.run(theirs[EDITOR].execute(asked | {"path": str(there / path)}))
    action = Action(
        tool=EDITOR, command="", arguments=asked | {"path": f"{box.workdir}/{path}".rstrip("/.")}
    )
    at_ours = ours[EDITOR].run(action, box)
    assert (at_ours.returncode == 0) == (at_theirs.error_code == 0), (at_ours, at_theirs)
    assert lines_shown(at_ours.output) == lines_shown(at_theirs.output or "")
    for file in there.rglob("*"):
        if file.is_file():
            inside = box.download(str(file.relative_to(there)), limit_bytes=10**6)
            assert inside == file.read_bytes()


def test_a_long_file_is_clipped_where_theirs_is(
    ours: Any, theirs: Any, folders: tuple[Sandbox, Path]
):
    box, there = folders
    asked = {"command": "view", "path": str(there / "long")}
    full = lines_shown(asyncio.run(theirs[EDITOR].execute(asked)).output)
    action = Action(tool=EDITOR, command="", arguments=asked | {"path": f"{box.workdir}/long"})
    shown = lines_shown(ours[EDITOR].run(action, box).output)
    # Their notice stands on the last line, ours below it.
    assert shown[:-1] == full[:-1]
    assert full[-1].startswith(shown[-1])


def test_a_folder_lists_what_theirs_lists(ours: Any, theirs: Any, folders: tuple[Sandbox, Path]):
    box, there = folders
    listed = asyncio.run(theirs[EDITOR].execute({"command": "view", "path": str(there)})).output
    action = Action(tool=EDITOR, command="", arguments={"command": "view", "path": box.workdir})
    ours_listed = ours[EDITOR].run(action, box).output.splitlines()
    assert sorted(line.removeprefix(box.workdir) for line in ours_listed) == sorted(
        line.removeprefix(str(there)) for line in listed.splitlines() if line.startswith(str(there))
    )


@pytest.mark.parametrize(
    "command", ["echo a; echo b", "false", "cd /; X=1; pwd", "printf '%s' \"$X\"; exit 3"]
)
def test_bash_prints_and_returns_what_theirs_does(
    ours: Any, theirs: Any, folders: tuple[Sandbox, Path], command: str
):
    box, _ = folders

    async def there() -> Any:
        result = await theirs["bash"].execute({"command": command})
        await theirs["bash"].close()
        return result

    result = ours["bash"].run(Action(tool="bash", command=command, arguments={}), box)
    expected = asyncio.run(there())
    assert result.output.rstrip("\n") == (expected.output or "").rstrip("\n")
    assert result.returncode == expected.error_code


@pytest.mark.parametrize("change", [{}, {"thought_number": 9}, {"thought_number": 0},
                                    {"next_thought_needed": None}, {"thought": 1},
                                    {"branch_from_thought": 1, "branch_id": "b"}])  # fmt: skip
def test_a_thought_has_the_status_that_theirs_has(
    ours: Any, theirs: Any, folders: tuple[Sandbox, Path], change: dict[str, Any]
):
    tool = "sequentialthinking"
    thought = {"thought": "t", "thought_number": 1, "total_thoughts": 2}
    asked = {**thought, "next_thought_needed": True, **change}
    at_ours = ours[tool].run(Action(tool=tool, command="", arguments=asked), folders[0])
    at_theirs = asyncio.run(theirs[tool].execute(asked))
    assert (at_ours.returncode == 0) == (at_theirs.error_code == 0)
    if at_ours.returncode == 0:
        assert status(at_ours.output) == status(at_theirs.output)


def status(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def test_the_checkouts_prompts_are_read_word_for_word():
    agent = with_prompts({"prompts_from": f"{CHECKOUT}:trae_agent"})
    source = (CHECKOUT / "trae_agent" / "prompt" / "agent_prompt.py").read_text()
    assert rendered(agent["system_template"]) in source
    task = rendered(agent["instance_template"], workdir="/testbed", task="{{ It fails. }}")
    assert "[Project root path]:\n/testbed\n" in task
    assert task.endswith("{{ It fails. }}\n")
