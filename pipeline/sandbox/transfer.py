"""Files in and out of a sandbox, through its control folder and its own shell.

Owns the copying. The host never follows a path inside the sandbox: it would follow links that
a command put there. What crosses lies in the control folder for as long as the copy takes.
"""

import posixpath
import shlex

from pipeline.protocols import CommandResult
from pipeline.records.failure import DiskError, PathError, SandboxError
from pipeline.sandbox import folders
from pipeline.sandbox.control import ControlFolder
from pipeline.sandbox.resident import Resident

_TIMEOUT_S = 300.0
_ABSENT = 66
_REFUSED = 67
"""The path cannot be opened; anything else that fails is ours."""
_CROSSING = "transfer"


def upload(
    resident: Resident,
    control: ControlFolder,
    seen_as: str,
    *,
    data: bytes,
    path: str,
    workdir: str,
) -> None:
    """Write `data` to `path` inside; a relative path is under `workdir`.

    Args:
        resident: the sandbox's shell.
        control: its control folder.
        seen_as: where commands find that.
        data: the file's new content.
        path: where to.
        workdir: the repository inside.

    Raises:
        PathError: it cannot be written there.
        SandboxError: the sandbox failed.
        DiskError: no room.
    """
    try:
        control.put(_CROSSING, data)
    except OSError as error:
        raise folders.failed(f"cannot stage an upload to {path}", error) from error
    target = _absolute(path, workdir)
    parent, quoted = shlex.quote(posixpath.dirname(target)), shlex.quote(target)
    command = (
        f"{{ mkdir -p -- {parent} && : >{quoted}; }} || exit {_REFUSED}; "
        f"cat -- {seen_as}/{_CROSSING} >{quoted}"
    )
    result = resident.execute_ours(command, timeout_s=_TIMEOUT_S)
    control.drop(_CROSSING)
    if result.returncode:
        raise _failed(f"cannot upload to {path}", result)


def download(
    resident: Resident,
    control: ControlFolder,
    seen_as: str,
    *,
    path: str,
    limit_bytes: int,
    workdir: str,
) -> bytes:
    """Return at most `limit_bytes` of the file at `path` inside.

    Raises:
        FileNotFoundError: there is no such file.
        PathError: it cannot be read.
        SandboxError: the sandbox failed.
        DiskError: no room for a copy of it.
    """
    source = shlex.quote(_absolute(path, workdir))
    crossing = f"{seen_as}/{_CROSSING}"
    command = (
        f"[ -f {source} ] || exit {_ABSENT}; [ -r {source} ] || "
        f"{{ echo Permission denied; exit {_REFUSED}; }}; "
        f"rm -rf -- {crossing}; head -c {limit_bytes} -- {source} >{crossing}"
    )
    result = resident.execute_ours(command, timeout_s=_TIMEOUT_S)
    if result.returncode == _ABSENT:
        raise FileNotFoundError(f"no file {path} in the sandbox")
    if result.returncode:
        raise _failed(f"cannot download {path}", result)
    try:
        return control.take(_CROSSING, limit_bytes=limit_bytes)
    except OSError as error:
        raise SandboxError(f"cannot download {path}: {error}") from error


def _failed(what: str, result: CommandResult) -> DiskError | SandboxError:
    said = f"{what}: {result.output.strip() or result.returncode}"
    if "No space left" in result.output:
        return DiskError(said)
    return PathError(said) if result.returncode == _REFUSED else SandboxError(said)


def _absolute(path: str, workdir: str) -> str:
    return path if path.startswith("/") else f"{workdir}/{path}"
