"""Harbor's task folders, read into rows: `task.toml`, `instruction.md`, `tests/`, `solution/`.

Owns what of a task is carried over, and which tasks are refused because a row cannot say what they
need. A row holds its tests and its solution as archives, so that a results folder is enough to
grade from; what they say is run and never read.
"""

import base64
import hashlib
import io
import json
import re
import tarfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.benchmarks.rows import DatasetError

MODEL_PATCH = "/logs/artifacts/model.patch"
"""Where a verifier that applies the agent's work itself looks for it."""
ARCHIVE_LIMIT_BYTES = 64 << 20
VERIFIER_TIMEOUT_S = 600.0
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)
_PLAIN_STEP = re.compile(r"(FROM|COPY|WORKDIR)\s|RUN\s+chmod\s", re.IGNORECASE)
_OUR_USER = (None, "root", 0, "0")

Task = Mapping[str, Any]
Refusal = Callable[[Task, Path], bool]


def task_folders(folder: Path) -> list[Path]:
    """Return the task folders in `folder`, or `folder` itself where it is one, by name."""
    return sorted(path.parent for path in folder.rglob("task.toml"))


def task_row(folder: Path) -> dict[str, Any]:
    """Return the row of one task folder.

    Raises:
        DatasetError: it is not complete, or needs what is not done here; the message says what.
    """
    task = _task_of(folder)
    needs = [what for what, needed in _REFUSALS.items() if needed(task, folder)]
    if needs:
        raise DatasetError(f"{folder}: it needs {', '.join(needs)}, which is not done here")
    environment, verifier = _part(task, "environment"), _part(task, "verifier")
    tests = archive(folder / "tests")
    if "test.sh" not in names_in(tests):
        raise DatasetError(f"{folder}: there is no tests/test.sh to grade with")
    has_solution = (folder / "solution" / "solve.sh").is_file()
    return {
        "instance_id": folder.name,
        "repo": _repo_of(task, folder),
        "problem_statement": _instruction(folder),
        "image": environment.get("docker_image") or f"harbor/{folder.name}:latest",
        "workdir": environment.get("workdir") or _workdir_in(folder / "environment/Dockerfile"),
        "network_rollout": _has_network(_part(task, "agent"), environment),
        "network_grade": _has_network(verifier, verifier.get("environment") or environment),
        "wall_limit_s": _part(task, "agent").get("timeout_sec"),
        "grade_timeout_s": float(verifier.get("timeout_sec") or VERIFIER_TIMEOUT_S),
        "env": _json(environment.get("env")),
        "verifier_env": _json(verifier.get("env")),
        "solution_env": _json(_part(task, "solution").get("env")),
        "patch_path": MODEL_PATCH if _is_separate(verifier) else None,
        "tests": base64.b64encode(tests).decode(),
        "tests_sha256": hashlib.sha256(tests).hexdigest(),
        "solution": base64.b64encode(archive(folder / "solution")).decode() if has_solution else "",
    }


def archive(folder: Path) -> bytes:
    """Return the files of `folder` as an uncompressed tar archive, the same for the same files.

    Raises:
        DatasetError: there are none, one is neither a file nor a folder, or they are too large.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise DatasetError(f"{path}: only files and folders are carried into a sandbox")
            if path.is_file():
                info = tarfile.TarInfo(path.relative_to(folder).as_posix())
                info.size = path.stat().st_size
                info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                with path.open("rb") as file:
                    tar.addfile(info, file)
    if out.tell() > ARCHIVE_LIMIT_BYTES:
        raise DatasetError(f"{folder}: more than {ARCHIVE_LIMIT_BYTES >> 20} MiB; rows hold less")
    return out.getvalue()


def names_in(data: bytes) -> list[str]:
    """Return the names of the files in an archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def files_in(data: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Yield name, content and whether it may be run, of each file in an archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            if file is not None:
                yield member.name, file.read(), bool(member.mode & 0o100)


def _task_of(folder: Path) -> Task:
    try:
        return tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"{folder}/task.toml: {error}") from None


def _part(task: Task, name: str) -> Mapping[str, Any]:
    part = task.get(name) or {}
    if not isinstance(part, Mapping):
        raise DatasetError(f"task.toml: [{name}] must be a table, not {part!r}")
    return part


def _instruction(folder: Path) -> str:
    """Return the instruction without the canary lines that it may begin with."""
    try:
        lines = (folder / "instruction.md").read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{folder}: no instruction to read: {error}") from None
    while lines and (_CANARY.fullmatch(lines[0]) or not lines[0].strip()):
        del lines[0]
    if not lines:
        raise DatasetError(f"{folder}/instruction.md is empty")
    return "".join(lines)


def _repo_of(task: Task, folder: Path) -> str:
    """Return the repository that a task is about, or else the organisation that published it."""
    url = str(_part(task, "metadata").get("repository_url") or "")
    if url:
        return "/".join(url.removesuffix(".git").rstrip("/").split("/")[-2:])
    name = str(_part(task, "task").get("name") or "")
    return name.partition("/")[0] if "/" in name else folder.parent.name


def _workdir_in(dockerfile: Path) -> str | None:
    """Return the last working directory that a Dockerfile sets."""
    if not dockerfile.is_file():
        return None
    text = dockerfile.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^\s*WORKDIR\s+(/\S*)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return str(found[-1]) if found else None


def _mode(phase: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """Return the network mode of a phase: its own, or else its environment's."""
    own = phase.get("network_mode") or environment.get("network_mode")
    if own is None and environment.get("allow_internet") is False:
        return "no-network"
    return str(own or "public")


def _has_network(phase: Mapping[str, Any], environment: Mapping[str, Any]) -> bool:
    return _mode(phase, environment) != "no-network"


def _is_separate(verifier: Mapping[str, Any]) -> bool:
    return verifier.get("environment_mode") == "separate" or bool(verifier.get("environment"))


def _json(variables: Any) -> str:
    return json.dumps(dict(sorted((variables or {}).items())))


# --- what is refused ------------------------------------------------------------------------------
def _has_allowlist(task: Task, _folder: Path) -> bool:
    environment, verifier = _part(task, "environment"), _part(task, "verifier")
    phases = ((_part(task, "agent"), environment), (verifier, verifier.get("environment") or {}))
    return any(_mode(phase, its) not in ("public", "no-network") for phase, its in phases)


def _needs_variables(task: Task, _folder: Path) -> bool:
    tables = [
        _part(task, name).get("env") or {} for name in ("environment", "verifier", "solution")
    ]
    return any("${" in str(value) for table in tables for value in table.values())


def _has_other_artifacts(task: Task, _folder: Path) -> bool:
    """Return whether a verifier apart is given anything but the patch."""
    given = [a if isinstance(a, str) else a.get("source") for a in task.get("artifacts") or ()]
    return _is_separate(_part(task, "verifier")) and given != [MODEL_PATCH]


def _has_verifier_image(task: Task, folder: Path) -> bool:
    """Return whether the verifier's image is more than the task's with files copied into it."""
    verifier, image = _part(task, "verifier"), _part(task, "environment").get("docker_image")
    own = (verifier.get("environment") or {}).get("docker_image")
    if own is not None and own != image:
        return True
    dockerfile = folder / "tests" / "Dockerfile"
    if not (_is_separate(verifier) and dockerfile.is_file()):
        return False
    text = dockerfile.read_text(encoding="utf-8", errors="replace")
    steps = [line.strip() for line in text.splitlines()]
    steps = [line for line in steps if line and not line.startswith("#")]
    return not (
        all(_PLAIN_STEP.match(step) for step in steps)
        and [step.split()[1] for step in steps if step.upper().startswith("FROM")] == [image]
    )


_REFUSALS: Mapping[str, Refusal] = {
    "several steps": lambda task, folder: bool(task.get("steps")) or (folder / "steps").is_dir(),
    "several containers (docker-compose.yaml)": lambda _, folder: any(
        (folder / part / "docker-compose.yaml").is_file() for part in ("environment", "tests")
    ),
    "a GPU": lambda task, _: bool(_part(task, "environment").get("gpus")),
    "a TPU": lambda task, _: bool(_part(task, "environment").get("tpu")),
    "Windows": lambda task, _: (
        str(_part(task, "environment").get("os") or "linux").lower() != "linux"
    ),
    "tools from a server (mcp_servers)": lambda task, _: bool(
        _part(task, "environment").get("mcp_servers")
    ),
    "skills (skills_dir)": lambda task, _: bool(_part(task, "environment").get("skills_dir")),
    "a start that is waited for (healthcheck)": lambda task, _: bool(
        _part(task, "environment").get("healthcheck")
    ),
    "an earlier conversation (trajectory.json)": lambda _, folder: (
        folder / "trajectory.json"
    ).is_file(),
    "a network with a list of hosts (network_mode)": _has_allowlist,
    "variables of the machine (${...} in env)": _needs_variables,
    "another user than root": lambda task, _: any(
        _part(task, phase).get("user") not in _OUR_USER for phase in ("agent", "verifier")
    ),
    "commands after the run (verifier.collect)": lambda task, _: bool(
        _part(task, "verifier").get("collect")
    ),
    "a verifier with an image of its own": _has_verifier_image,
    f"a verifier that is given other files than {MODEL_PATCH}": _has_other_artifacts,
}
"""What a task may need and a row cannot say, and how that is seen."""
