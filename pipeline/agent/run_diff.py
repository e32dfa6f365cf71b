"""What a run changed, as a patch: the submission of agents that submit so, and else at a limit.

At a limit it is a secondary outcome (docs/methods.md, Protocol). Owns the commands that find the
commit a run begins at and the diff against it, work that the agent committed and new files
included. Where the working directory is no repository, its first state is committed to one of our
own beside it. Whether a run is asked at all is the scaffold's and `rollout`'s.
"""

import shlex

from pipeline.agent.printed_patch import PrintedPatch, patch_after
from pipeline.protocols import Sandbox
from pipeline.records.failure import SandboxError

_OWN = "/tmp/.first-state"
"""Our repository of a working directory that is none: outside it, so that no command sees it."""
_IN_OWN = f'export GIT_DIR={_OWN} GIT_WORK_TREE="$PWD"'
FIRST_COMMIT_COMMAND = f"""git rev-parse --verify --quiet HEAD 2>/dev/null && exit
{_IN_OWN}
git init --quiet && git add --all --force && \
git -c user.name=first -c user.email=first@localhost commit --quiet --allow-empty -m first && \
git rev-parse --verify HEAD
"""
_MARK = b"== diff of the run =="


def first_commit(sandbox: Sandbox, *, timeout_s: float) -> str | None:
    """Return the commit that a fresh sandbox has checked out, or one of its files as they are.

    None where git is missing, or takes longer.
    """
    result = sandbox.execute(FIRST_COMMIT_COMMAND, timeout_s=timeout_s)
    commit = result.output.strip()
    return commit if result.returncode == 0 and commit.isalnum() else None


def first_commit_to_submit_from(sandbox: Sandbox, *, timeout_s: float) -> str:
    """Return the first commit, for a run whose submission is the diff against it.

    Raises:
        SandboxError: there is none, so that nothing which the run does could be submitted.
    """
    commit = first_commit(sandbox, timeout_s=timeout_s)
    if commit is None:
        raise SandboxError(
            f"git finds no commit in {sandbox.workdir} and cannot make one in {timeout_s:g} s, so "
            "nothing could be submitted: install git in the image, or raise command_timeout_s"
        )
    return commit


def run_diff(
    sandbox: Sandbox, commit: str | None, *, timeout_s: float, committed_only: bool = False
) -> PrintedPatch:
    """Return the diff between `commit` and the tree as it is now; empty where git cannot say.

    With `committed_only` it is the diff to what the agent has committed.
    """
    if commit is None:
        return PrintedPatch()
    command = run_diff_command(commit, committed_only=committed_only)
    result = sandbox.execute(command, timeout_s=timeout_s, whole_after=_MARK)
    return patch_after(_MARK, result) or PrintedPatch()


def run_diff_command(commit: str, *, committed_only: bool = False) -> str:
    """Return the command that prints a mark and then the diff against `commit`.

    New files are added to an index of our own, so that the repository stays as the agent left it.
    What the agent configured (prefixes, colours, a diff program) does not reach the diff, and what
    git remarks (line endings, for one) is no part of it: a patch with either would not apply.
    """
    base = shlex.quote(commit)
    with_tree = (
        "folder=$(mktemp -d) || exit; trap 'rm -rf \"$folder\"' EXIT\n"
        f"git --git-dir={_OWN} cat-file -e {base} 2>/dev/null && {_IN_OWN} && force=--force\n"
        'without=; [ -n "$force" ] || without=--exclude-standard\n'
        'cp "$(git rev-parse --git-path index)" "$folder/index" 2>/dev/null\n'
        'export GIT_INDEX_FILE="$folder/index"\n'
        "git add --all --ignore-errors $force >/dev/null 2>&1 ||\n"
        # A repository inside that has no commit yet fails it as a whole: all but such are added.
        "git ls-files -z --others --modified --deleted $without | grep -zv '/$' |\n"
        "git update-index -z --add --remove --stdin >/dev/null 2>&1\n"
    )
    return (
        ("" if committed_only else with_tree) + f"echo {shlex.quote(_MARK.decode())}\n"
        f"git --no-pager diff {'' if committed_only else '--cached '}--binary --no-color "
        "--no-ext-diff --no-textconv --no-renames --src-prefix=a/ --dst-prefix=b/ "
        f"{base}{' HEAD' if committed_only else ''} 2>/dev/null\n"
    )
