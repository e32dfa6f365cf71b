"""The tool `str_replace_based_edit_tool`: views and edits files without a shell.

Works over the sandbox's download and upload, so that an image needs no Python. The rules are those
of Trae agent's tool: text is shown and matched with tabs expanded, a replacement must be of exactly
one place, and what the model reads is clipped. The words are ours.
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.agent.bash_tool import HALF_CHARACTER, with_focus
from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.records.failure import PathError
from pipeline.views.policy import RequestedToolCall

NAME = "str_replace_based_edit_tool"
MAX_FILE_BYTES = 8 << 20
SNIPPET_LINES = 4
"""Shown before and after an edit."""
CLIP_CHARS = 16_000

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": (
            "View and edit text files; what is edited stays. `view`: a file with line numbers, or a"
            " folder two levels deep. `create`: a new file; one that exists is refused."
            " `str_replace`: put `new_str` in the place of `old_str`, which must stand in the file"
            " exactly once, white space included. `insert`: put `new_str` after a line."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
                "path": {"type": "string", "description": "Absolute path of a file or folder."},
                "file_text": {"type": "string", "description": "The new file's text (create)."},
                "old_str": {"type": "string", "description": "What to replace (str_replace)."},
                "new_str": {
                    "type": "string",
                    "description": "The text to put there (str_replace, insert).",
                },
                "insert_line": {
                    "type": "integer",
                    "description": "Insert after this line; 0 for the beginning (insert).",
                },
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "First and last line to show, from 1; -1 for the end (view).",
                },
            },
            "required": ["command", "path"],
        },
    },
}


class EditError(Exception):
    """A request that cannot be carried out; the message tells the model why."""


class EditorTool:
    """Views and edits files in the sandbox."""

    name = NAME

    def __init__(self, *, timeout_s: float, asks_focus: bool) -> None:
        self.schema = with_focus(SCHEMA) if asks_focus else SCHEMA
        self._timeout_s = timeout_s

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:
        """Return what the request came to."""
        try:
            output = self._done(action.arguments or {}, sandbox)
        except (EditError, PathError) as error:
            return ToolResult(output=f"Nothing was done: {error}.", returncode=1)
        # Bytes of a file that are no UTF-8 cannot be shown; in the file they stay.
        return ToolResult(output=output.encode(errors="surrogateescape").decode(errors="replace"))

    def _done(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        command, path = _text(arguments, "command"), _text(arguments, "path")
        if not path.startswith("/"):
            raise EditError(f"{path!r} is no absolute path; {sandbox.workdir}/{path} may be it")
        if "\0" in path:
            raise EditError("a path holds no NUL character")
        if command == "view":
            return self._view(path, arguments, sandbox)
        edit = _EDITS.get(command)
        if edit is None:
            raise EditError(f"there is no command {command!r}; use view, {', '.join(_EDITS)}")
        if self._is(path, "-d", sandbox):
            raise EditError(f"{path} is a folder")
        if command == "create" and self._is(path, "-e", sandbox):
            raise EditError(f"{path} exists already; change it with str_replace or insert")
        return edit(path, arguments, sandbox)

    def _is(self, path: str, test: str, sandbox: Sandbox) -> bool:
        command = f"test {test} {shlex.quote(path)}"
        return sandbox.execute(command, timeout_s=self._timeout_s).returncode == 0

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:
        """Return the request as a shell would take it: the tool, its command, the path, options."""
        if call.lone_surrogates:
            raise ValueError(HALF_CHARACTER)
        words = [NAME, str(arguments.get("command", "")), str(arguments.get("path", ""))]
        for key, value in arguments.items():
            if key not in ("command", "path"):
                values = value if isinstance(value, list) else [value]
                words += [f"--{key}", *map(str, values)]
        return shlex.join(words)

    def _view(self, path: str, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        asked = arguments.get("view_range")
        if self._is(path, "-d", sandbox):
            if asked:
                raise EditError(f"{path} is a folder, and view_range is for files")
            listed = f"find {shlex.quote(path)} -maxdepth 2 ! -path '*/.*' | LC_ALL=C sort"
            return clipped(sandbox.execute(listed, timeout_s=self._timeout_s).output)
        text = _read(path, sandbox)
        if not asked:
            return numbered(text, 1)
        lines = text.split("\n")
        first, last = _range(asked, len(lines))
        return numbered("\n".join(lines[first - 1 : last]), first)


def _create(path: str, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
    _write(path, _text(arguments, "file_text"), sandbox)
    return f"{path} was created."


def _str_replace(path: str, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
    old = _text(arguments, "old_str").expandtabs()
    new = _text(arguments, "new_str", default="").expandtabs()
    text = _read(path, sandbox)
    found = text.count(old) if old else 0
    if found != 1:
        where = [str(n) for n, line in enumerate(text.split("\n"), 1) if old and old in line]
        at = f", in lines {', '.join(where)}" if where else ""
        raise EditError(f"old_str stands {found} times in {path}{at}; it must be there once")
    _write(path, text.replace(old, new), sandbox)
    line = text[: text.index(old)].count("\n")
    return _edited(path, text.replace(old, new), line, new.count("\n") + 1)


def _insert(path: str, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
    new = _text(arguments, "new_str").expandtabs()
    lines = _read(path, sandbox).split("\n")
    at = arguments.get("insert_line")
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(lines):
        raise EditError(f"insert_line must be a number from 0 to {len(lines)}")
    text = "\n".join([*lines[:at], *new.split("\n"), *lines[at:]])
    _write(path, text, sandbox)
    return _edited(path, text, at, new.count("\n") + 1)


_EDITS: Mapping[str, Callable[[str, Mapping[str, Any], Sandbox], str]] = {
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
}


def numbered(text: str, first: int) -> str:
    """Return text, as far as the model reads it, as `cat -n` prints it from line `first` on."""
    lines = text[:CLIP_CHARS].split("\n")
    return "".join(f"{n:6}\t{line}\n" for n, line in enumerate(lines, first)) + _notice(text)


def clipped(text: str) -> str:
    """Return the text as far as the model reads it."""
    return text if len(text) <= CLIP_CHARS else f"{text[:CLIP_CHARS]}\n{_notice(text)}"


def _notice(text: str) -> str:
    left = len(text) - CLIP_CHARS
    return f"[clipped: {left} more characters]\n" if left > 0 else ""


def _edited(path: str, text: str, line: int, n_lines: int) -> str:
    lines = text.split("\n")
    first = max(0, line - SNIPPET_LINES)
    shown = "\n".join(lines[first : line + n_lines + SNIPPET_LINES])
    return f"{path} was edited. Around the change it now is:\n{numbered(shown, first + 1)}"


def _read(path: str, sandbox: Sandbox) -> str:
    try:
        data = sandbox.download(path, limit_bytes=MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise EditError(f"there is no file {path}") from None
    if len(data) > MAX_FILE_BYTES:
        raise EditError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; use bash for it")
    if b"\0" in data:
        raise EditError(f"{path} is no text file; use bash for it")
    return data.decode("utf-8", "surrogateescape").expandtabs()


def _write(path: str, text: str, sandbox: Sandbox) -> None:
    sandbox.upload(text.encode("utf-8", "surrogateescape"), path)


def _text(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise EditError(f"`{name}` must be given, as a text")
    return value


def _range(asked: Any, n_lines: int) -> tuple[int, int]:
    numbers = asked if isinstance(asked, list) else []
    if len(numbers) != 2 or not all(type(n) is int for n in numbers):
        raise EditError("view_range must be two line numbers")
    first, last = numbers[0], n_lines if numbers[1] == -1 else numbers[1]
    if not 1 <= first <= last <= n_lines:
        raise EditError(f"view_range must lie within lines 1 to {n_lines}")
    return first, last
