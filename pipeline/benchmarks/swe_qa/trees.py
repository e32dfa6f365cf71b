"""The files of a repository at one commit, from the user's clone of it."""

import shutil
from pathlib import Path

from pipeline.benchmarks.git import GitError, git
from pipeline.records.failure import SandboxError


def copy_tree(clones: Path, repo: str, commit: str, target: Path) -> None:
    """Fill `target` with the files of `commit`; it becomes a repository with that commit only.

    Args:
        clones: folder of clones, bare or not.
        repo: OWNER/NAME; its clone is OWNER__NAME, NAME, or either with `.git`.
        commit: what `git archive` takes.
        target: a folder that is absent or empty.

    Raises:
        SandboxError: there is no such clone or commit.
    """
    target.mkdir(parents=True, exist_ok=True)
    clone = _clone_of(clones, repo)
    archive = target / ".tree.tar"
    try:
        git(clone, "-c", "safe.directory=*", "archive", f"--output={archive.absolute()}", commit)
        shutil.unpack_archive(archive, target, "tar", filter="data")
        archive.unlink()
        git(target, "init", "--quiet", "--template=", "--initial-branch=main")
        git(target, "add", "--all", "--force")
        who = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
        git(target, *who, "commit", "--quiet", "--allow-empty", f"--message={repo} at {commit}")
    except GitError as error:
        raise SandboxError(f"{repo} at {commit}: {error}") from error


def _clone_of(clones: Path, repo: str) -> Path:
    owner, _, name = repo.rpartition("/")
    names = [f"{owner}__{name}", name] if owner else [name]
    candidates = [clones / f"{n}{end}" for n in names for end in ("", ".git")]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise SandboxError(f"no clone of {repo} in {clones}; clone it there as {candidates[0].name}")
