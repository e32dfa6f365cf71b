"""Prompts that stand in an installed package or a file of their own, read when a sweep is composed.

`agent.prompts_from: PACKAGE:NAME` reads NAME.yaml of a package's `config` folder, such as
mini-SWE-agent's published prompts (`minisweagent:benchmarks/swebench`); `FILE:KEY` reads the
mapping at the dotted KEY of a YAML file (FILE alone: the whole of it); `FOLDER:trae_agent` reads
the prompts of a checkout of Trae agent, which is on no registry. The texts go into the lock, and
into the run ids, as if they had been written into the sweep.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from pipeline.planning.trae_prompts import PACKAGE, trae_prompts

PROMPTS = (
    *("system_template", "instance_template", "observation_template"),
    "format_error_template",
)
"""What is taken over, wherever in the file it stands."""


class PromptsError(ValueError):
    """Prompts cannot be read; the message says from where and what to write."""


def with_prompts(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's configuration with the prompts that it names in place.

    Raises:
        PromptsError: there is no such package, file or key, or no prompt in it.
    """
    source = agent.get("prompts_from")
    if not source:
        return dict(agent)
    found = dict(_prompts(_read(str(source))))
    if not found:
        raise PromptsError(f"prompts_from: {source} has none of {', '.join(PROMPTS)}")
    return {**agent, **found}


def _read(source: str) -> Any:
    place, _, key = source.partition(":")
    try:
        if place.endswith((".yaml", ".yml")):
            data = yaml.safe_load(Path(place).read_text(encoding="utf-8"))
            for part in filter(None, key.split(".")):
                data = data[part]
            return data
        if key == PACKAGE:
            return trae_prompts(Path(place).expanduser())
        text = files(place).joinpath("config", *f"{key}.yaml".split("/")).read_text("utf-8")
        return yaml.safe_load(text)
    except (OSError, ImportError, KeyError, TypeError, SyntaxError, yaml.YAMLError) as error:
        raise PromptsError(
            f"prompts_from: nothing can be read from {source}: {error!r}; write PACKAGE:NAME "
            "(minisweagent:benchmarks/swebench), FILE.yaml:KEY, or CHECKOUT:trae_agent"
        ) from error


def _prompts(tree: Any) -> Iterator[tuple[str, str]]:
    """Yield the prompts of a file, in whichever of its sections they stand."""
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        if key in PROMPTS and isinstance(value, str):
            yield key, value
        else:
            yield from _prompts(value)
