"""The file format: sections, keys, typed values; reading and writing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SECTION = re.compile(r"^\[(?P<name>[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)*)\]$")
KEY = re.compile(r"^(?P<key>[A-Za-z][\w-]*)\s*=\s*(?P<value>.*)$")
INTEGER = re.compile(r"^[-+]?\d+$")
FLOAT = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$")
BARE = re.compile(r"^[^\s\"',\[\]][^\"',\[\]]*$")

WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class _Unset:
    """The value written `~`: the key is taken away from the layers below."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


class ParseError(ValueError):
    """Text that is no configuration; knows the line."""

    def __init__(self, message: str, line_number: int, source: str = "<text>") -> None:
        super().__init__(f"{source}:{line_number}: {message}")
        self.line_number = line_number
        self.source = source


@dataclass(frozen=True)
class _Line:
    """A logical line: continuation lines are already joined to it."""

    number: int
    text: str


def strip_comment(line: str) -> str:
    """Return a line without its comment, which starts with `#` or `;` at the line's begin or
    after a blank."""
    for position, character in enumerate(line):
        if character in "#;" and (position == 0 or line[position - 1] in " \t"):
            return line[:position].rstrip()
    return line.rstrip()


def _logical_lines(text: str) -> "list[_Line]":
    """Return the lines that say something; a trailing backslash joins the next line."""
    lines: "list[_Line]" = []
    pending = ""
    started = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = strip_comment(raw)
        if pending:
            line = pending + line.lstrip()
        else:
            started = number
        if line.endswith("\\"):
            pending = line[:-1].rstrip() + " "
            continue
        pending = ""
        if line.strip():
            lines.append(_Line(started, line.strip()))
    if pending.strip():
        lines.append(_Line(started, pending.strip()))
    return lines


def _quoted(text: str) -> str:
    """Return what is between the double quotes, with its escapes undone."""
    out = []
    position = 1
    while position < len(text) - 1:
        character = text[position]
        if character == "\\":
            position += 1
            escape = text[position]
            if escape not in ESCAPES:
                raise ValueError(f"unknown escape \\{escape}")
            out.append(ESCAPES[escape])
        elif character == '"':
            raise ValueError("a quote inside the quotes must be written \\\"")
        else:
            out.append(character)
        position += 1
    return "".join(out)


def split_items(text: str) -> "list[str]":
    """Return the items of a list, separated by commas that are not inside quotes or brackets."""
    items: "list[str]" = []
    depth = 0
    quoted = False
    escaped = False
    current = ""
    for character in text:
        if quoted:
            quoted = character != '"' or escaped
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[]":
            depth += 1 if character == "[" else -1
        if character == "," and not quoted and depth == 0:
            items.append(current.strip())
            current = ""
        else:
            current += character
    if current.strip():
        items.append(current.strip())
    return items


def parse_value(text: str) -> Any:
    """Return the value that a text stands for.

    Quoted text, a `[list, of, values]`, a number, true/false (yes/no, on/off), `~` for unset, the
    empty text for None, or else the text as it is.
    """
    text = text.strip()
    if text == "":
        return None
    if text == "~":
        return UNSET
    if text.startswith('"'):
        if len(text) < 2 or not text.endswith('"'):
            raise ValueError(f"the quote is never closed: {text}")
        return _quoted(text)
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"the list is never closed: {text}")
        return [parse_value(item) for item in split_items(text[1:-1])]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if INTEGER.match(text):
        return int(text)
    if FLOAT.match(text):
        return float(text)
    return text


def loads(text: str, source: str = "<text>") -> "dict[str, Any]":
    """Return the configuration in `text` as nested dicts, one level for each part of a section.

    Raises:
        ParseError: a line that is neither section nor key, a key twice in its section, or a value
            that cannot be read.
    """
    tree: "dict[str, Any]" = {}
    section = tree
    seen: "set[tuple[str, str]]" = set()
    name = ""
    for line in _logical_lines(text):
        match = SECTION.match(line.text)
        if match:
            name = match["name"]
            section = tree
            for part in name.split("."):
                section = section.setdefault(part, {})
                if not isinstance(section, dict):
                    raise ParseError(f"{part!r} is a value already", line.number, source)
            continue
        match = KEY.match(line.text)
        if match is None:
            raise ParseError(f"neither a section nor a key: {line.text!r}", line.number, source)
        key = match["key"]
        if (name, key) in seen:
            raise ParseError(f"{key!r} is given twice", line.number, source)
        seen.add((name, key))
        try:
            section[key] = parse_value(match["value"])
        except ValueError as error:
            raise ParseError(str(error), line.number, source) from None
    return tree


def format_value(value: Any) -> str:
    """Return text that `parse_value` reads back as the same value."""
    if value is None:
        return ""
    if value is UNSET:
        return "~"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(format_value(item) for item in value) + "]"
    text = str(value)
    if BARE.match(text) and parse_value(text) == text and text == text.strip():
        return text
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(character, escape)
    return f'"{text}"'


def dumps(tree: "dict[str, Any]") -> str:
    """Return the text form of nested dicts; `loads` reads it back."""
    out: "list[str]" = []

    def write(section: "dict[str, Any]", path: "tuple[str, ...]") -> None:
        keys = [key for key, value in section.items() if not isinstance(value, dict)]
        if path and keys:
            out.append(f"[{'.'.join(path)}]")
        out.extend(f"{key} = {format_value(section[key])}".rstrip() for key in keys)
        if keys:
            out.append("")
        for key, value in section.items():
            if isinstance(value, dict):
                write(value, (*path, key))

    write(tree, ())
    return "\n".join(out).rstrip("\n") + "\n"
