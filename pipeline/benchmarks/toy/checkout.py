"""Real git checkouts of the toy repositories.

A checkout is built from scratch each time: `git fast-import` of a history that fits in memory takes
20 ms, needs no cache to share and keep, and cannot race. Authors, dates and content fix every hash.
Commits after the base do not exist in it, so the answer cannot be looked up.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.git import git
from pipeline.benchmarks.toy.sources import Commit, find_instance, history_before

_CONFIG = {"user.name": "toy", "user.email": "toy@example.org", "gc.auto": "0"}


class CheckoutError(RuntimeError):
    """git built another repository than the row describes."""


def materialise(row: Mapping[str, Any], target: Path) -> None:
    """Make `target` the git checkout of a toy row at its base commit.

    Args:
        row: a row of `toy_rows`.
        target: a folder that is absent or empty.

    Raises:
        GitError: git failed.
        CheckoutError: the base commit is another than the row's.
        KeyError: the row is of no toy instance.
    """
    repo, index = find_instance(str(row["instance_id"]))
    built = build(history_before(repo, index), target)
    if built != row["base_commit"]:
        raise CheckoutError(
            f"{row['instance_id']}: built {built}, the row says {row['base_commit']}; the sources "
            "changed: run `python -m pipeline.benchmarks.toy.derive`"
        )


def build(commits: Sequence[Commit], target: Path) -> str:
    """Build a repository with these commits on `main`, check it out, return the last one's hash."""
    target.mkdir(parents=True, exist_ok=True)
    # Hooks and templates of this machine have no business in it.
    git(target, "init", "--quiet", "--template=", "--initial-branch=main")
    git(target, "fast-import", "--quiet", "--done", input=import_stream(commits))
    for key, value in _CONFIG.items():
        section, _, name = key.partition(".")
        with (target / ".git" / "config").open("a", encoding="utf-8") as file:
            file.write(f"[{section}]\n\t{name} = {value}\n")
    git(target, "reset", "--quiet", "--hard", "main")
    return (target / ".git" / "refs" / "heads" / "main").read_text(encoding="ascii").strip()


def import_stream(commits: Sequence[Commit]) -> bytes:
    """Return the history in the language of `git fast-import`."""
    out: list[bytes] = []
    before: Mapping[str, str] = {}
    for commit in commits:
        who = f"{commit.author} {commit.date} +0000"
        out.append(f"commit refs/heads/main\nauthor {who}\ncommitter {who}\n".encode())
        out.append(_data(commit.message))
        for path, text in sorted(commit.tree.items()):
            if before.get(path) != text:
                out.append(f"M 100644 inline {path}\n".encode() + _data(text))
        out.extend(f"D {path}\n".encode() for path in sorted(set(before) - set(commit.tree)))
        before = commit.tree
    return b"".join([*out, b"done\n"])


def _data(text: str) -> bytes:
    data = text.encode()
    return b"data %d\n%s\n" % (len(data), data)
