"""Small trajectory files of mini's, built piece by piece."""

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[4] / "shared" / "cases"


def words(text: str) -> int:
    return len(text.split())


def response(prompt: int, completion: int = 10, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"model": "m", "choices": [{"finish_reason": "tool_calls"}], "usage": usage, **more}


def call(number: int, command: str, prompt: int | None = None, **extra: Any) -> dict[str, Any]:
    """An assistant message with one call of bash."""
    arguments = json.dumps({"command": command})
    return {
        "role": "assistant",
        "content": f"step {number}",
        "tool_calls": [{"id": f"t{number}", "function": {"name": "bash", "arguments": arguments}}],
        "extra": {
            "actions": [{"command": command, "tool_call_id": f"t{number}"}],
            **({} if prompt is None else {"response": response(prompt)}),
            **extra,
        },
    }


def result(number: int, content: Any, **extra: Any) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": f"t{number}",
        "content": content,
        "extra": {"returncode": 0, **extra},
    }


def trajectory(
    *messages: dict[str, Any], task: Any = "Mend the scale.", status: str = "Submitted", **more: Any
) -> dict[str, Any]:
    """A file of format 1.1 with these messages after the system's and the task's."""
    info: dict[str, Any] = {
        "exit_status": status,
        "submission": "diff --git a/a b/a\n" if status == "Submitted" else "",
        "mini_version": "2.4.6",
        "config": {"model": {"model_name": "m"}},
    }
    info.update(more.pop("info", {}))
    return {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": info,
        "messages": [
            {"role": "system", "content": "You work in a shell."},
            {"role": "user", "content": task},
            *messages,
        ],
        **more,
    }


def write(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path
