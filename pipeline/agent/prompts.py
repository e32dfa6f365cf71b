"""Prompt templates: rendered, and what an observation's template puts around the output.

Owns the Jinja settings of all prompts. The templates themselves are in the agent's spec.
"""

from functools import lru_cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

_MARK = "\x00output\x00"
"""Stands for the output when only the frame is asked for; no output holds it."""


def rendered(template: str, **names: Any) -> str:
    """Return the template's text; an undefined name in it raises `jinja2.TemplateError`."""
    return _compiled(template).render(**names)


@lru_cache(maxsize=256)
def output_frame(template: str, **facts: Any) -> tuple[str, str]:
    """Return what the template writes before and after an output with `facts` beside it.

    An output that the template changes (trims, for one) is not between the two.
    """
    framed = rendered(template, output={**facts, "output": _MARK})
    before, _, after = framed.partition(_MARK)
    return before, after


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return Environment(undefined=StrictUndefined, autoescape=False).from_string(template)
