"""Sessions of coding tools on this machine: where each keeps them, found without reading any."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

Environment = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A coding tool."""

    folders: Callable[[Environment], list[Path]]
    """Where it keeps its sessions, were it installed."""
    patterns: tuple[str, ...]
    """Of session files below those folders."""
    pricing: str | None
    """The file of conf/pricing that its models usually are in; None: there is no usual one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A session's file, known by its name, size and time of change alone."""

    tool: str
    path: Path
    n_bytes: int
    changed_at: float


def _claude_folders(environment: Environment) -> list[Path]:
    named = environment.get("CLAUDE_CONFIG_DIR", "")
    if named:
        return [Path(folder.strip()).expanduser() for folder in named.split(",") if folder.strip()]
    home = _home(environment)
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return [home / ".claude", config / "claude"]


def _codex_folders(environment: Environment) -> list[Path]:
    return [Path(environment.get("CODEX_HOME") or _home(environment) / ".codex")]


def _opencode_folders(environment: Environment) -> list[Path]:
    data = environment.get("XDG_DATA_HOME") or _home(environment) / ".local" / "share"
    return [Path(data) / "opencode"]


def _home(environment: Environment) -> Path:
    return Path(environment.get("HOME") or Path.home())


TOOLS: dict[str, Tool] = {
    "claude-code": Tool(
        folders=_claude_folders, patterns=("projects/**/*.jsonl",), pricing="anthropic"
    ),
    "codex": Tool(
        folders=_codex_folders,
        patterns=("sessions/**/*.jsonl", "archived_sessions/**/*.jsonl"),
        pricing="openai",
    ),
    "opencode": Tool(folders=_opencode_folders, patterns=("opencode*.db",), pricing=None),
}


def sessions_of(tool: str, environment: Environment) -> list[Found]:
    """Return a tool's sessions, newest first; nothing is read."""
    here = TOOLS[tool]
    files = {
        path.resolve(): None
        for folder in here.folders(environment)
        for pattern in here.patterns
        for path in folder.glob(pattern)
    }
    return sorted(_known(tool, files), key=lambda f: (-f.changed_at, str(f.path)))


def _known(tool: str, files: Mapping[Path, None]) -> Iterator[Found]:
    for path in files:
        try:
            facts = path.stat()
        except OSError:
            continue
        yield Found(tool=tool, path=path, n_bytes=facts.st_size, changed_at=facts.st_mtime)


def all_sessions(environment: Environment) -> list[Found]:
    """Return the sessions of all tools, newest first."""
    found = [session for tool in TOOLS for session in sessions_of(tool, environment)]
    return sorted(found, key=lambda f: (-f.changed_at, str(f.path)))


def listing(found: list[Found], environment: Environment) -> Iterator[str]:
    """Yield the lines of a listing: when, how large, which tool, where."""
    home = str(_home(environment))
    for session in found:
        changed = datetime.fromtimestamp(session.changed_at).astimezone()
        where = str(session.path)
        where = f"~{where[len(home) :]}" if where.startswith(home + "/") else where
        size = f"{session.n_bytes / 1e6:.1f} MB"
        yield f"{changed:%Y-%m-%d %H:%M}  {size:>9}  {session.tool:11}  {where}"
    for tool, facts in TOOLS.items():
        own = [session for session in found if session.tool == tool]
        looked = ", ".join(str(folder) for folder in facts.folders(environment))
        n_mb = sum(session.n_bytes for session in own) / 1e6
        yield (
            f"{tool}: {len(own)} files, {n_mb:,.0f} MB; price them with: python -m pipeline.replay"
            f" {tool}"
            if own
            else f"{tool}: none in {looked}"
        )
    yield "Nothing was opened: files are known by name, size and time."
