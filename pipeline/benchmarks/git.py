"""git, without what this machine and its user have configured."""

from pathlib import Path

from pipeline.host.environment import environment
from pipeline.host.process import run_command

GIT_TIMEOUT_S = 300.0


class GitError(RuntimeError):
    """git failed; the message has its words."""


def git(folder: Path, *arguments: str, input: bytes | None = None) -> str:  # noqa: A002
    """Run git in `folder` and return what it printed.

    Raises:
        GitError: it failed.
    """
    # Variables such as GIT_DIR, which git sets for hooks, would send all of this elsewhere.
    env = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = run_command(
        ["git", *arguments], cwd=folder, env=env, input=input, timeout_s=GIT_TIMEOUT_S
    )
    if done.returncode != 0:
        raise GitError(f"git {arguments[0]} in {folder} failed ({done.returncode}): {done.text}")
    return done.text
