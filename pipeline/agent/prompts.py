"""Prompt templates: rendered, and what an observation's template puts around the output.

Owns the Jinja settings of all prompts. The templates themselves are in the agent's spec.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

_MARK = "\x00output\x00"
"""Stands for the output when only the frame is asked for; no output holds it."""


def rendered(template: str, **names: Any) -> str:
    """Return the template's text; an undefined name in it raises `jinja2.TemplateError`."""
    return _compiled(template).render(**names)


def output_start(template: str, output: Mapping[str, Any], content: str) -> int | None:
    """Return where the raw output begins in the text that `template` made of it.

    None where the template changed it, such as by trimming.

    Args:
        template: an observation template.
        output: what it saw: `output` and further facts.
        content: what it made of that.
    """
    before, after = _frame(template, tuple((k, v) for k, v in output.items() if k != "output"))
    return len(before) if content == before + output["output"] + after else None


@lru_cache(maxsize=256)
def _frame(template: str, facts: tuple[tuple[str, Any], ...]) -> tuple[str, str]:
    """Return what a template writes before and after an output with `facts` beside it."""
    before, _, after = rendered(template, output={**dict(facts), "output": _MARK}).partition(_MARK)
    return before, after


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return Environment(undefined=StrictUndefined, autoescape=False).from_string(template)
