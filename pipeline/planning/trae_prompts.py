"""Trae agent's own prompts, read from a user's checkout of it without running any of its code."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "trae_agent"
_SYSTEM = ("prompt/agent_prompt.py", "TRAE_AGENT_SYSTEM_PROMPT")
_TASK = ("agent/trae_agent.py", "user_message")
_NAMES: Mapping[str, str] = {
    "self.project_path": "{{ workdir }}",
    "extra_args['issue']": "{{ task }}",
}
"""What the task's message is filled in with there, and here."""


def trae_prompts(checkout: Path) -> dict[str, str]:
    """Return the system message and the task's message as templates of an agent.

    Raises:
        OSError: no such file in the checkout.
        KeyError: the file has another form than the one known here.
        SyntaxError: it is no Python.
    """
    found = {
        "system_template": "".join(_assigned(checkout, *_SYSTEM)),
        "instance_template": "".join(_assigned(checkout, *_TASK)),
    }
    missing = [name for name, text in found.items() if not text.strip()]
    if missing:
        raise KeyError(", ".join(missing))
    # Templates lose one newline at their end.
    return {name: f"{text}\n" for name, text in found.items()}


def _assigned(checkout: Path, file: str, name: str) -> Iterator[str]:
    """Yield the texts that a module assigns to `name`, or adds to it as f-strings.

    What it adds as it stands is for containers of its own.
    """
    source = (checkout / PACKAGE / file).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AugAssign):
            targets, value = [node.target], node.value
        else:
            continue
        if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
            continue
        if isinstance(value, ast.JoinedStr):
            yield from map(_part, value.values)
        elif isinstance(node, ast.Assign) and isinstance(value, ast.Constant):
            yield _literal(str(value.value))


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return _NAMES[ast.unparse(part.value)]
    return _literal(str(ast.literal_eval(part)))


def _literal(text: str) -> str:
    """Return a template of `text` as it stands."""
    return f"{{% raw %}}{text}{{% endraw %}}" if "{" in text else text
