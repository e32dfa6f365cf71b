"""The shell commands by which the simulated agent changes files."""

import re
from random import Random

from pipeline.serving.sim.progress import EDIT_MARK
from pipeline.serving.sim.recipe import FileEdit, Recipe

_PLAIN = re.compile(r"[\w \t=<>+\-,:()\"!#%]+")


def chosen_edit(recipe: Recipe, step: int, rng: Random, *, blind: bool) -> FileEdit | None:
    """Return the edit made at a plan step, right or wrong.

    Only the decisive edit can go wrong: always where the instance is not solvable, else with
    probability 1 - skill, and with half the skill where the text was not in view.
    """
    edit = recipe.steps[step - 1].edit
    if edit is None or recipe.decisive_step != step - 1:
        return edit
    skill = recipe.skill * (0.5 if blind else 1.0)
    if rng.random() < skill and recipe.solvable:
        return edit
    if recipe.wrong is not None:
        return recipe.wrong
    return FileEdit(path=edit.path, old=edit.old, new=_remark(edit.old))


def edit_command(edit: FileEdit, *, number: int, title: str, rng: Random) -> str:
    """Return a command that makes the edit; running it twice changes nothing more."""
    mark = EDIT_MARK.format(number=number) + title.replace("\n", " ")
    if _is_plain(edit) and rng.random() < 0.25:
        return f"sed -i '0,/{edit.old}/s//{edit.new}/' {edit.path}  {mark}"
    return "\n".join(
        (
            "python3 - <<'EDIT'",
            mark,
            "from pathlib import Path",
            f"path = Path({edit.path!r})",
            "text = path.read_text()",
            f"old = {edit.old!r}",
            f"new = {edit.new!r}",
            "if new in text and (old in new or old not in text):",
            f"    print('{edit.path} already holds the change')",
            "elif old in text:",
            "    path.write_text(text.replace(old, new, 1) if old else text + new)",
            f"    print('edited {edit.path}')",
            "else:",
            f"    print('old text not found in {edit.path}')",
            "EDIT",
        )
    )


def _is_plain(edit: FileEdit) -> bool:
    """Return whether sed can make the edit: one line, nothing special, and safe to repeat."""
    return (
        bool(_PLAIN.fullmatch(edit.old) and _PLAIN.fullmatch(edit.new))
        and edit.old not in edit.new
        and edit.old == edit.old.strip("\n")
        and len(edit.old) > 8
    )


def _remark(old: str) -> str:
    """Return `old` with a remark after its last line: a change that repairs nothing."""
    stripped = old.rstrip("\n")
    return f"{stripped}  # reviewed{old[len(stripped) :]}"
