"""How the simulated agent goes about each toy instance: `recipes.json`.

A recipe is data of the benchmark, not of the agent: what there is to do, what must be seen to do
it, and a wrong turn. Owns turning a source's anchors (texts) into line numbers. Does not know when
a seed succeeds, nor what a view is.

Line numbers are those of the file when the step begins, after the edits of all earlier steps. On a
seed that fails, and on instances beyond the agent, `wrong` is made *instead of the recipe's last
edit*. Made alone on the base it does not resolve the instance either, and its `old` is there too.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.benchmarks.toy.sources import (
    RepoSource,
    SourceError,
    TextEdit,
    Tree,
    edited,
    history_before,
)

RECIPES = Path(__file__).parent / "recipes.json"


@cache
def load_recipes() -> dict[str, Any]:
    """Return instance id -> recipe, read once a process."""
    recipes: dict[str, Any] = json.loads(RECIPES.read_text(encoding="utf-8"))
    return recipes


def recipe_for(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how the simulated agent goes about a row; None: it knows nothing of it.

    A row may bring its `recipe`. Else the toy benchmark's has one for its instances.
    """
    own: Mapping[str, Any] | None = row.get("recipe")
    return own or load_recipes().get(str(row["instance_id"]))


def recipe_of(repo: RepoSource, index: int) -> dict[str, Any]:
    """Return the recipe of an instance, built from its source.

    Raises:
        SourceError: an anchor or an edit's text is not in the file, or not unique where it must be.
    """
    instance = repo.instances[index]
    source = instance.recipe
    tree = history_before(repo, index)[-1].tree
    steps = []
    for step in source["step"]:
        edit = instance.fix[step["edit"]] if "edit" in step else None
        steps.append(
            {
                "title": step["title"],
                "explore": list(step["explore"]),
                "needs": [_range(tree, need) for need in step["needs"]],
                "edit": None if edit is None else _plain(edit),
                "verify": list(step["verify"]),
            }
        )
        if edit is not None:
            tree = edited(tree, [edit])
    return {
        # Word for word in the problem statement: by it `sim` recognises the instance.
        "summary": instance.problem.strip().partition("\n")[0],
        "steps": steps,
        "solvable": source["solvable"],
        "wrong": _plain(TextEdit(**source["wrong"])),
        "skill": source["skill"],
    }


def _range(tree: Tree, need: Mapping[str, str]) -> dict[str, Any]:
    """Return the lines from the one that starts with `from` to the next that starts with `to`."""
    lines = tree[need["path"]].splitlines()
    starts = [n for n, line in enumerate(lines, start=1) if line.startswith(need["from"])]
    if len(starts) != 1:
        raise SourceError(f"{need['path']}: {len(starts)} lines start with {need['from']!r}")
    for number in range(starts[0], len(lines) + 1):
        if lines[number - 1].startswith(need["to"]):
            return {"path": need["path"], "start": starts[0], "end": number}
    raise SourceError(f"{need['path']}: after line {starts[0]} none starts with {need['to']!r}")


def _plain(edit: TextEdit) -> dict[str, str]:
    return {"path": edit.path, "old": edit.old, "new": edit.new}
