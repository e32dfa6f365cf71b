"""What a run changed, as a patch: the submission of agents that submit so, and else at a limit.

At a limit it is a secondary outcome (docs/methods.md, Protocol). Owns the commands that find the
commit a run begins at and the diff against it, work that the agent committed and new files
included. Whether a run is asked at all is the scaffold's and `rollout`'s.
"""

import shlex

from pipeline.agent.printed_patch import PrintedPatch, patch_after
from pipeline.protocols import Sandbox

FIRST_COMMIT_COMMAND = "git rev-parse --verify --quiet HEAD"
_MARK = b"== diff of the run =="


def first_commit(sandbox: Sandbox, *, timeout_s: float) -> str | None:
    """Return the commit that a fresh sandbox has checked out; None without a repository."""
    result = sandbox.execute(FIRST_COMMIT_COMMAND, timeout_s=timeout_s)
    commit = result.output.strip()
    return commit if result.returncode == 0 and commit.isalnum() else None


def run_diff(sandbox: Sandbox, commit: str | None, *, timeout_s: float) -> PrintedPatch:
    """Return the diff between `commit` and the tree as it is now; empty where git cannot say."""
    if commit is None:
        return PrintedPatch()
    result = sandbox.execute(run_diff_command(commit), timeout_s=timeout_s, whole_after=_MARK)
    return patch_after(_MARK, result) or PrintedPatch()


def run_diff_command(commit: str) -> str:
    """Return the command that prints a mark and then the diff against `commit`.

    New files are added to an index of our own, so that the repository stays as the agent left it.
    What the agent configured (prefixes, colours, a diff program) does not reach the diff, and what
    git remarks (line endings, for one) is no part of it: a patch with either would not apply.
    """
    base = shlex.quote(commit)
    return (
        "folder=$(mktemp -d) || exit; trap 'rm -rf \"$folder\"' EXIT\n"
        'cp "$(git rev-parse --git-path index)" "$folder/index" 2>/dev/null\n'
        'export GIT_INDEX_FILE="$folder/index"\n'
        "git add --all --ignore-errors >/dev/null 2>&1\n"
        f"echo {shlex.quote(_MARK.decode())}\n"
        "git --no-pager diff --cached --binary --no-color --no-ext-diff --no-textconv --no-renames "
        f"--src-prefix=a/ --dst-prefix=b/ {base} 2>/dev/null\n"
    )
