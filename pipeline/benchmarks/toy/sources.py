"""What the toy repositories are made of: files, history, and the instances cut from them.

Owns reading `repos/`. A repository's `tree/` holds its files as they were before the first
instance; `history.toml` lists the commits that led there; `instances/*.toml` hold what is wrong
with it, each fixed by a commit of its own before the next, as in a real project. Does not know
git, nor rows.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

REPOS = Path(__file__).parent / "repos"
TEST_RUNNER = "runtests.py"
"""Shared by all repositories: they can count on nothing but the standard library."""

Tree = Mapping[str, str]
"""Path -> text of every file."""


class SourceError(ValueError):
    """Sources that do not fit together: an edit whose text is not there exactly once."""


@dataclass(frozen=True, kw_only=True)
class TextEdit:
    """A replacement in a file; an empty `old` appends to the file's end."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit: who, when (Unix seconds, UTC), why, and the files after it."""

    author: str
    date: int
    message: str
    tree: Tree


@dataclass(frozen=True, kw_only=True)
class InstanceSource:
    """One bug: what is reported, how it is fixed, which tests find it, how `sim` goes about it."""

    instance_id: str
    author: str
    date: int
    """When the fix was committed."""
    version: str
    difficulty: str
    problem: str
    hints: str
    fix: tuple[TextEdit, ...]
    hidden: tuple[TextEdit, ...]
    recipe: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RepoSource:
    """One repository: the commits before the first instance, then the instances in order."""

    name: str
    commits: tuple[Commit, ...]
    instances: tuple[InstanceSource, ...]


def edited(tree: Tree, edits: Sequence[TextEdit]) -> Tree:
    """Return the files after some edits, one after another.

    Raises:
        SourceError: the text to replace is not in the file exactly once.
    """
    result = dict(tree)
    for edit in edits:
        text = result.get(edit.path)
        if text is None:
            raise SourceError(f"no file {edit.path}")
        if not edit.old:
            result[edit.path] = text + edit.new
            continue
        if text.count(edit.old) != 1:
            raise SourceError(f"{edit.path} has {text.count(edit.old)} times:\n{edit.old}")
        result[edit.path] = text.replace(edit.old, edit.new)
    return result


@cache
def repo_names() -> tuple[str, ...]:
    """Return the names of the repositories, sorted."""
    return tuple(sorted(path.parent.name for path in REPOS.glob("*/history.toml")))


@cache
def repo_source(name: str) -> RepoSource:
    """Return one repository, read once a process."""
    folder = REPOS / name
    final = {
        path.relative_to(folder / "tree").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((folder / "tree").rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    final[TEST_RUNNER] = (REPOS / TEST_RUNNER).read_text(encoding="utf-8")
    history = tomllib.loads((folder / "history.toml").read_text(encoding="utf-8"))["commit"]
    return RepoSource(
        name=name,
        commits=tuple(_commits(history, final)),
        instances=tuple(_instance(path) for path in sorted((folder / "instances").glob("*.toml"))),
    )


def find_instance(instance_id: str) -> tuple[RepoSource, int]:
    """Return the repository of an instance and the instance's place in it, from 0.

    Raises:
        KeyError: there is no such instance.
    """
    for name in repo_names():
        repo = repo_source(name)
        for index, instance in enumerate(repo.instances):
            if instance.instance_id == instance_id:
                return repo, index
    raise KeyError(f"no toy instance {instance_id!r}")


def history_before(repo: RepoSource, index: int) -> tuple[Commit, ...]:
    """Return the commits up to an instance's base: earlier instances are fixed, later are not."""
    commits = list(repo.commits)
    for instance in repo.instances[:index]:
        tree = edited(commits[-1].tree, (*instance.fix, *instance.hidden))
        title = instance.problem.strip().splitlines()[0]
        number = instance.instance_id.rsplit("-", 1)[1]
        commits.append(
            Commit(
                author=instance.author,
                date=instance.date,
                message=f"Fix #{number}: {title}\n",
                tree=tree,
            )
        )
    return tuple(commits)


def _commits(history: Sequence[Mapping[str, Any]], final: Tree) -> list[Commit]:
    """Work out the files after each commit, from the last one backwards.

    A commit lists the files that came with it, and texts (`added`) that came into older files.
    """
    tree = dict(final)
    commits: list[Commit] = []
    for entry in reversed(history):
        commits.append(
            Commit(
                author=entry["author"],
                date=entry["date"],
                message=entry["message"].strip() + "\n",
                tree=dict(tree),
            )
        )
        for added in entry.get("added", ()):
            undo = TextEdit(path=added["path"], old=added["text"], new=added.get("before", ""))
            tree = dict(edited(tree, [undo]))
        for path in entry.get("files", ()):
            if tree.pop(path, None) is None:
                raise SourceError(f"history names {path}, which is not there")
    if tree:
        raise SourceError(f"no commit brings {', '.join(tree)}")
    return commits[::-1]


def _instance(path: Path) -> InstanceSource:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return InstanceSource(
        instance_id=data["id"],
        author=data["author"],
        date=data["date"],
        version=data["version"],
        difficulty=data["difficulty"],
        problem=data["problem"],
        hints=data.get("hints", ""),
        fix=tuple(TextEdit(**edit) for edit in data["fix"]),
        hidden=tuple(TextEdit(**edit) for edit in data["hidden"]),
        recipe=data["recipe"],
    )
