"""A small real repository, its recipe, and a real agent loop against a simulated server."""

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from pipeline.agent.plan_tool import PLANCTL_TOOL, answer_arguments, answer_line
from pipeline.agent.planctl import Plan

SUMMARY = "The average of an empty list raises ZeroDivisionError instead of returning zero."
TASK = f"<pr_description>\n{SUMMARY}\nSee stats.py and shapes.py.\n</pr_description>\nFix it."
PLACEHOLDER = "[Earlier command output omitted.]"
CLEANUP = (
    "You have completed part of your plan. Pause coding for this response and review what you "
    "have worked on.\nOutputs you can still see:\n"
)
BASH_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
PRUNE_TOOL = {
    "type": "function",
    "function": {"name": "prune_observations", "parameters": {"type": "object", "properties": {}}},
}
TEXT_SYSTEM = (
    "Answer with one block.\n```mswea_bash_command\nyour_command_here\n```\n"
    "Keep a plan with lines such as `planctl set a | b`; `prune_observations 3 5` when asked."
)


def _module(name: str, body: str) -> str:
    filler = "\n\n".join(
        f"def {name}_{i}(value):\n    # adds {i} to the value\n    return value + {i}"
        for i in range(25)
    )
    return f"{filler}\n\n\n{body}"


STATS_BODY = "def average(values):\n    return sum(values) / len(values)\n"
SHAPES_BODY = "def area(width, height):\n    return width * height + 1\n"
STATS_EDIT = {
    "path": "stats.py",
    "old": "    return sum(values) / len(values)\n",
    "new": "    return sum(values) / len(values) if values else 0\n",
}
SHAPES_EDIT = {
    "path": "shapes.py",
    "old": "    return width * height + 1\n",
    "new": "    return width * height\n",
}


def recipe(*, solvable: bool = True, skill: float = 1.0) -> dict:
    """The recipe of the small repository: four steps, two edits."""
    n_stats = _module("stats", STATS_BODY).count("\n")
    n_shapes = _module("shapes", SHAPES_BODY).count("\n")
    stats = {"path": "stats.py", "start": n_stats - 5, "end": n_stats}
    shapes = {"path": "shapes.py", "start": n_shapes - 5, "end": n_shapes}
    check = "python3 -c 'import stats, shapes; print(stats.average([2, 4]))'"
    return {
        "demo-1": {
            "summary": SUMMARY,
            "solvable": solvable,
            "skill": skill,
            "wrong": {**SHAPES_EDIT, "new": "    return width * height + 2\n"},
            "steps": [
                {
                    "title": "Understand the repository",
                    "explore": ["ls", "git log --oneline -5", "cat stats.py", "cat shapes.py"],
                    "needs": [shapes],
                    "edit": None,
                    "verify": [],
                },
                {
                    "title": "Reproduce the failure",
                    "explore": ["grep -n 'def a' stats.py", "grep -rn average . --include=*.py"],
                    "needs": [],
                    "edit": None,
                    "verify": ["python3 -c 'import stats; stats.average([])'"],
                },
                {
                    "title": "Repair average",
                    "explore": ["git status --short", "wc -l stats.py"],
                    "needs": [stats],
                    "edit": STATS_EDIT,
                    "verify": [check, "git diff --stat"],
                },
                {
                    "title": "Repair area",
                    "explore": ["grep -n width shapes.py"],
                    "needs": [shapes],
                    "edit": SHAPES_EDIT,
                    "verify": [check, "git diff"],
                },
            ],
        }
    }


def write_recipes(folder: Path, **changes: object) -> Path:
    """Write the recipe to a file of its own and return the path."""
    path = folder / "recipes.json"
    path.write_text(json.dumps(recipe(**changes)))
    return path


def make_repository(folder: Path) -> Path:
    """Make the repository, with one commit, and return its path."""
    folder.mkdir(parents=True)
    (folder / "stats.py").write_text(_module("stats", STATS_BODY))
    (folder / "shapes.py").write_text(_module("shapes", SHAPES_BODY))
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "start"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def copy_of(repository: Path, folder: Path) -> Path:
    """Return a copy of a repository at `folder`."""
    shutil.copytree(repository, folder)
    return folder


@dataclass
class Client:
    """One keep-alive connection."""

    port: int
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, data)
        response = self.connection.getresponse()
        return response.status, response.read()

    def chat(self, messages: list, **fields: object) -> dict:
        body = {"model": "sim", "messages": messages, "seed": 1, **fields}
        status, raw = self.send("POST", "/v1/chat/completions", body)
        assert status == 200, raw
        return json.loads(raw)

    def close(self) -> None:
        self.connection.close()


View = Callable[[list[dict]], list[dict]]


@dataclass
class Run:
    """One run of the agent: real bash in a real repository."""

    client: Client
    repository: Path
    seed: int = 0
    view: View = list
    plan_tool: bool = True
    prunes: bool = False
    text_mode: bool = False
    step_limit: int = 250
    system: str | None = None
    messages: list[dict] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    usages: list[dict] = field(default_factory=list)
    refused_plans: list[str] = field(default_factory=list)
    pruned: set[int] = field(default_factory=set)
    cleanups: int = 0
    submission: str | None = None
    plan: Plan = field(default_factory=Plan)

    @property
    def n_steps(self) -> int:
        return len(self.usages)

    def go(self) -> "Run":
        system = self.system or (TEXT_SYSTEM if self.text_mode else "You fix bugs.")
        self.messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": TASK},
        ]
        while self.submission is None and self.n_steps < self.step_limit:
            self._step()
        return self

    def shown(self) -> list[dict]:
        whole = [
            {**m, "content": PLACEHOLDER} if i in self.pruned else m
            for i, m in enumerate(self.messages)
        ]
        return self.view(whole)

    def _ask(self, messages: list[dict], kind: str, **fields: object) -> dict:
        seed = crc32(f"{self.seed}/{kind}/{self.n_steps}".encode())
        if not self.text_mode:
            tools = [BASH_TOOL]
            tools += [PLANCTL_TOOL] if self.plan_tool else []
            tools += [PRUNE_TOOL] if self.prunes else []
            fields = {"tools": tools, **fields}
        return self.client.chat(messages, seed=seed, cache_salt=str(self.repository), **fields)

    def _step(self) -> None:
        answer = self._ask(self.shown(), "step")
        self.usages.append(answer["usage"])
        message = answer["choices"][0]["message"]
        self.messages.append({k: v for k, v in message.items() if v and k != "refusal"})
        acts = self._acts(message)
        completed = False
        for name, argument, call_id in acts:
            if name == "planctl":
                completed |= self._plan(argument, call_id)
            else:
                self._bash(argument["command"], call_id)
        if completed and self.prunes and self.submission is None:
            self._cleanup()

    def _acts(self, message: dict) -> list[tuple]:
        if not self.text_mode:
            return [
                (c["function"]["name"], json.loads(c["function"]["arguments"]), c["id"])
                for c in message["tool_calls"]
            ]
        blocks = re.findall(r"```mswea_bash_command\n(.*?)\n```", message["content"], re.DOTALL)
        assert len(blocks) == 1
        if blocks[0].startswith("planctl"):
            return [("planctl", blocks[0], None)]
        return [("bash", {"command": blocks[0]}, None)]

    def _observe(self, text: str, call_id: str | None) -> None:
        if call_id is None:
            self.messages.append({"role": "user", "content": text})
        else:
            self.messages.append({"role": "tool", "content": text, "tool_call_id": call_id})

    def _plan(self, argument: object, call_id: str | None) -> bool:
        reader = answer_line if isinstance(argument, str) else answer_arguments
        move = reader(self.plan, argument)
        self.plan = move.plan
        if not move.ok:
            self.refused_plans.append(move.text)
        self._observe(move.text, call_id)
        return any(change.action == "complete" for change in move.changes)

    def _bash(self, command: str, call_id: str | None) -> None:
        self.commands.append(command)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.repository,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.stdout.startswith("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n"):
            self.submission = done.stdout.partition("\n")[2]
        text = f"<returncode>{done.returncode}</returncode>\n<output>\n{done.stdout}</output>"
        self._observe(text, call_id)

    def _cleanup(self) -> None:
        live = [
            i
            for i, m in enumerate(self.messages[:-1])
            if i > 1 and i not in self.pruned and m["content"].startswith("<returncode>")
            if m["role"] != "assistant"
        ]
        lines = [f"[{i}] 99 tokens · plan step 1 · {self._command_before(i)}" for i in live]
        shown = self.shown()
        shown[-1] = {
            **shown[-1],
            "content": shown[-1]["content"] + f"\n{CLEANUP}" + "\n".join(lines),
        }
        fields = {}
        if not self.text_mode:
            choice = {"type": "function", "function": {"name": "prune_observations"}}
            fields = {"tool_choice": choice}
        message = self._ask(shown, "cleanup", **fields)["choices"][0]["message"]
        if self.text_mode:
            found = re.search(r"^prune_observations(.*)$", message["content"], re.MULTILINE)
            ids = [int(word) for word in found.group(1).split()]
        else:
            (call,) = message["tool_calls"]
            assert call["function"]["name"] == "prune_observations"
            ids = json.loads(call["function"]["arguments"])["ids"]
        assert set(ids) <= set(live)
        self.pruned |= set(ids)
        self.cleanups += 1

    def _command_before(self, at: int) -> str:
        call_id = self.messages[at].get("tool_call_id")
        for message in reversed(self.messages[:at]):
            for call in message.get("tool_calls", ()):
                if call["id"] == call_id:
                    return json.loads(call["function"]["arguments"])["command"]
            if call_id is None and message["role"] == "assistant":
                return message["content"].partition("_command\n")[2].partition("\n```")[0]
        raise AssertionError("no command")


def mask(keep_last: int) -> View:
    """A view in which only the newest outputs are text."""

    def masked(messages: list[dict]) -> list[dict]:
        results = [
            i for i, m in enumerate(messages) if str(m.get("content")).startswith("<returncode>")
        ]
        hidden = set(results[: max(0, len(results) - keep_last)])
        return [{**m, "content": PLACEHOLDER} if i in hidden else m for i, m in enumerate(messages)]

    return masked
