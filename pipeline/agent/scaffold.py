"""The seam for scaffolds: what turns a model into an agent, its loop, tools, prompts and endings.

A scaffold is a package here whose module `scaffold` has a function of that name; it drives a
`Session`, which is the same for all of them. docs/adding-a-scaffold.md has the steps.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from pipeline.agent.ending import Ending
from pipeline.agent.session import Session
from pipeline.agent.tool import Tool
from pipeline.protocols import Sandbox
from pipeline.spec.agent import AgentSpec


class Scaffold(Protocol):
    """An agent's loop."""

    def tools(self, *, asks_focus: bool) -> Sequence[Tool]:
        """Return fresh tools for one run, those of the experiment aside.

        Args:
            asks_focus: the command tool takes the question that the arm's line pruner needs.
        """
        ...

    def run(self, session: Session, sandbox: Sandbox, task: str) -> Ending:
        """Work on `task` until it ends; limits end it by `EndedError`, which may pass through."""
        ...


def scaffold_names() -> list[str]:
    """Return the scaffolds there are."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/scaffold.py"))


def scaffold_for(agent: AgentSpec) -> Scaffold:
    """Return the agent's scaffold.

    Raises:
        ValueError: there is none of that name, or it cannot work as the agent says.
    """
    if agent.scaffold not in scaffold_names():
        known = ", ".join(scaffold_names())
        raise ValueError(f"agent {agent.name}: no scaffold {agent.scaffold!r}; there are {known}")
    module = import_module(f"{__package__}.{agent.scaffold}.scaffold")
    scaffold: Scaffold = module.scaffold(agent)
    return scaffold
