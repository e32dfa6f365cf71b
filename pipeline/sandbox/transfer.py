"""Files in and out of a sandbox, through its control folder and its own shell.

Owns the copying. The host never follows a path inside the sandbox: it would follow links that
a command put there. What crosses lies in the control folder for as long as the copy takes.
"""

import shlex
from contextlib import suppress
from pathlib import Path

from pipeline.host.files import is_disk_full
from pipeline.records.failure import DiskError, SandboxError
from pipeline.sandbox.resident import Resident

_TIMEOUT_S = 300.0
_ABSENT = 66


def upload(
    resident: Resident, folder: Path, seen_as: str, *, data: bytes, path: str, workdir: str
) -> None:
    """Write `data` to `path` inside; a relative path is under `workdir`.

    Args:
        resident: the sandbox's shell.
        folder: its control folder on the host.
        seen_as: the same folder inside.
        data: the file's new content.
        path: where to.
        workdir: the repository inside.

    Raises:
        SandboxError: it cannot be written there.
        DiskError: no room.
    """
    staged = folder / "transfer"
    try:
        staged.write_bytes(data)
    except OSError as error:
        kind = DiskError if is_disk_full(error) else SandboxError
        raise kind(f"cannot stage an upload to {path}: {error}") from error
    target = shlex.quote(_absolute(path, workdir))
    command = f'mkdir -p -- "$(dirname -- {target})" && cat -- {seen_as}/transfer >{target}'
    result = resident.execute(command, timeout_s=_TIMEOUT_S, directory="/")
    staged.unlink(missing_ok=True)
    if result.returncode:
        kind = DiskError if "No space left" in result.output else SandboxError
        raise kind(f"cannot upload to {path}: {result.output.strip() or result.returncode}")


def download(
    resident: Resident, folder: Path, seen_as: str, *, path: str, limit_bytes: int, workdir: str
) -> bytes:
    """Return at most `limit_bytes` of the file at `path` inside.

    Raises:
        FileNotFoundError: there is no such file.
        SandboxError: it cannot be read.
    """
    source = shlex.quote(_absolute(path, workdir))
    command = (
        f"[ -f {source} ] || exit {_ABSENT}; head -c {limit_bytes} -- {source} >{seen_as}/transfer"
    )
    result = resident.execute(command, timeout_s=_TIMEOUT_S, directory="/")
    if result.returncode == _ABSENT:
        raise FileNotFoundError(f"no file {path} in the sandbox")
    staged = folder / "transfer"
    if result.returncode or staged.is_symlink():
        raise SandboxError(f"cannot download {path}: {result.output.strip() or result.returncode}")
    try:
        return staged.read_bytes()
    except OSError as error:
        raise SandboxError(f"cannot download {path}: {error}") from error
    finally:
        with suppress(OSError):
            staged.unlink()


def _absolute(path: str, workdir: str) -> str:
    return path if path.startswith("/") else f"{workdir}/{path}"
