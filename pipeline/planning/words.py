"""The words of a command line, before Hydra reads them: text stays the text that was written.

Hydra reads `12e4567` as infinity, `1.10` as 1.1 and `010` as 10, whatever the key holds. So where a
key holds text, the value of a word is quoted here. Owns also what Hydra takes wrongly (a key given
twice, an empty list of instances), what it could take and does not (`seeds=range(0,3)`), and the
numbers that YAML reads from a file as another number than is written there.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from pipeline.spec.agent import AgentSpec
from pipeline.spec.model import ModelSpec
from pipeline.spec.sweep import SweepSpec

_ONE_OF: Mapping[str, Any] = {"model": ModelSpec, "agent": AgentSpec, "dataset": str}
"""Keys of the command line that a sweep holds under another name."""

_NUMBER = r"[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)"
_ALONE = re.compile(rf"(?:{_NUMBER})", re.IGNORECASE)
_ITEM = re.compile(rf"(?<=[\[,:])(\s*)({_NUMBER})(?=\s*[,\]}}])", re.IGNORECASE)
_MISREAD = re.compile(r"[+-]?0[0-7]+|[+-]?\d+(?::[0-5]?\d)+")
"""YAML 1.1 reads these in base 8 and in base 60."""
_MAYBE_MISREAD = re.compile(rf"[:\[,-]\s+?({_MISREAD.pattern})\s*(?:[#,\]}}]|$)", re.MULTILINE)


class WordError(ValueError):
    """A word that cannot be meant; the message says what to write instead."""


def readable_words(words: Sequence[str]) -> list[str]:
    """Return the words as Hydra is to read them.

    Raises:
        WordError: a key given twice, an empty list of instances, a value of several.
    """
    seen: dict[str, str] = {}
    readable = []
    for word in words:
        key, equals, value = word.partition("=")
        name = key.lstrip("+~")
        if name in seen:
            raise WordError(f"{name} is given twice, as {seen[name]!r} and {word!r}; keep only one")
        seen[name] = word
        if equals:
            _refuse_several(name, value)
            readable.append(f"{key}={_as_written(name, _listed(value))}")
        else:
            readable.append(word)
    return readable


def misread_numbers(folder: Path) -> Iterator[str]:
    """Yield every number in the YAML files below `folder` that YAML reads as another one."""
    for path in sorted(folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if _MAYBE_MISREAD.search(text):
            for node in _scalars(yaml.compose(text)):
                if node.style is None and _MISREAD.fullmatch(node.value):
                    line = node.start_mark.line + 1
                    yield (
                        f"{path.relative_to(folder)}, line {line}: YAML reads {node.value} as "
                        f"{yaml.safe_load(node.value)}; write '{node.value}' in quotes, or the "
                        "number you mean"
                    )


def _refuse_several(name: str, value: str) -> None:
    if name == "instances.ids" and re.fullmatch(r"\[\s*\]", value):
        raise WordError(
            "instances.ids=[] names no instance, so nothing would run; omit it to run "
            "all, or name some: 'instances.ids=[ID,ID]'"
        )
    if re.fullmatch(r"[\w.+-]+(,[\w.+-]+)+", value):
        raise WordError(f"{name}={value}: several values are a list, written '{name}=[{value}]'")
    if re.match(r"(choice|glob|interval|shuffle|sort)\(", value):
        raise WordError(
            f"{name}={value}: Hydra's sweeps are not used here; write a list, '{name}=[A,B]'"
        )


def _listed(value: str) -> str:
    """Return `range(0,3)` as the list that it stands for."""
    found = re.fullmatch(r"range\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?(?:,\s*(-?\d+)\s*)?\)", value)
    if found is None:
        return value
    numbers = range(*(int(part) for part in found.groups() if part is not None))
    return f"[{','.join(map(str, numbers))}]"


def _as_written(name: str, value: str) -> str:
    """Return `value` with its numbers quoted where the key holds text."""
    if "'" in value or '"' in value:
        return value
    leaves = set(_leaves(SweepSpec, name.split(".")))
    if not leaves or not all(leaf in (str, NoneType) for leaf in leaves):
        return value
    if _ALONE.fullmatch(value):
        return f'"{value}"'
    return _ITEM.sub(r'\1"\2"', value) if value.startswith(("[", "{")) else value


def _leaves(hint: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the types that a value below `hint` may have at `path`, items of collections too."""
    arguments = get_args(hint)
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint):
        if path:
            known = get_type_hints(hint)
            known |= _ONE_OF if hint is SweepSpec else {}
            if path[0] in known:
                yield from _leaves(known[path[0]], path[1:])
            return
        yield hint
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _leaves(arguments[1], path[1:])
    elif origin is Literal or not arguments:
        yield hint
    else:
        for argument in arguments:
            if argument is not Ellipsis:
                yield from _leaves(argument, path)


def _scalars(node: Any) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _scalars(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value)
