"""Commands that look where the task's answer may lie: the network, other commits.

See docs/methods.md, Leaks.
"""

import re
from functools import lru_cache

from pipeline.shell.facts import run_pipelines
from pipeline.shell.kinds import git_words, python_call, words
from pipeline.shell.syntax import Stage

_INSTALLERS = words("pip pip3 conda mamba npm apt-get apt")
_FETCHES = frozenset({"install", "download", "update"})
_SHOWS_COMMITS = words("log show diff rev-list grep branch checkout cherry-pick")
_ELSEWHERE = re.compile(
    r"--all$|--remotes\b|(?:.*\.\.)?(?:origin/|upstream/|FETCH_HEAD|ORIG_HEAD|refs/)"
)
_STASH = frozenset({"list", "show", "pop", "apply"})
_NAMES_COMMIT = words("show diff checkout cherry-pick cat-file")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)([0-9a-f]{7,40})\b")


def _stages(command: str) -> list[Stage]:
    return [stage for pipeline in run_pipelines(command) for stage in pipeline]


@lru_cache(maxsize=1 << 17)
def fetches_from_network(command: str) -> bool:
    """Return whether the command installs or downloads something."""
    return any(map(_fetches, _stages(command)))


def _fetches(stage: Stage) -> bool:
    named = [word for word in stage.arguments if not word.startswith("-")]
    if stage.program in {"curl", "wget"}:
        return bool(named)
    if stage.program in _INSTALLERS or named[:1] == ["pip"]:
        return bool(_FETCHES & set(named[:2]))
    python = python_call(stage)
    if python is not None:
        return python.module == "pip" and bool(_FETCHES & set(python.rest[:1]))
    git = git_words(stage)
    return git[:1] in {("clone",), ("fetch",), ("pull",)} or git[:2] == ("remote", "add")


@lru_cache(maxsize=1 << 17)
def looks_at_other_commits(command: str) -> bool:
    """Return whether the command looks beyond the checked-out history."""
    return any(_looks_elsewhere(git_words(stage)) for stage in _stages(command))


def _looks_elsewhere(git: tuple[str, ...]) -> bool:
    if not git:
        return False
    if git[0] in {"reflog", "fsck"} or (git[0] == "stash" and _STASH & set(git[1:2])):
        return True
    return git[0] in _SHOWS_COMMITS and any(map(_ELSEWHERE.match, git[1:]))


@lru_cache(maxsize=1 << 17)
def named_commit(command: str) -> str | None:
    """Return the commit hash that a git command names, if it names one."""
    for stage in _stages(command):
        git = git_words(stage)
        if git and git[0] in _NAMES_COMMIT:
            revisions = git[1 : git.index("--")] if "--" in git else git[1:]
            for word in revisions:
                # What follows the colon is a path.
                if match := _HASH.search(word.partition(":")[0]):
                    return match[1]
    return None
