r"""What kind of thing a shell command does, by rules on its text.

A command is split into statements (at `&&`, `||`, `;` and newlines, outside quotes and heredocs).
A pipeline takes the kind of its source, so `cat f | grep x` reads and `grep x f` searches; output
that goes into a file writes. A command takes the kind of its last telling statement, since that is
what its output shows.

Measured against labels made by hand: tests/analysis/test_commands.py and docs/analysis.md.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Kind(StrEnum):
    """What a command does. Values are in result tables."""

    READ = "read"
    """Shows the text of files."""
    SEARCH = "search"
    """Finds files or lines: grep, find, ls."""
    HISTORY = "history"
    """Shows changes or history: git log, show, diff, blame; diff."""
    WRITE = "write"
    """Creates or changes files, the patch included."""
    TEST = "test"
    """Runs the repository's tests."""
    RUN = "run"
    """Runs code: scripts, one-liners, the program itself."""
    ENVIRONMENT = "environment"
    """Installs, or asks what is installed."""
    SUBMIT = "submit"
    OTHER = "other"

    @property
    def is_read(self) -> bool:
        """True where the output is text of the repository, which can be fetched again."""
        return self in _READS


_READS = frozenset({Kind.READ, Kind.SEARCH, Kind.HISTORY})

SUBMIT_SENTINEL = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)(?:\n[ \t]*\2[ \t]*(?=\n|$)|\Z)", re.S)
_PREFIX = re.compile(
    r"^(?:(?:\w+=\S*|sudo|env|time|nohup|command|exec|xargs|timeout\s+\S+|stdbuf\s+\S+)\s+)+"
)
_TO_FILE = re.compile(
    r"(?<![0-9&])>{1,2}\s*(?!&|/dev/null)([^\s&|;<>]+)|\btee\s+(?:-a\s+)?[^\s|;&]+"
)
_PYTHON = re.compile(r"^(?:\S*/)?(?:python|pypy)[\d.]*\b")
_PYTHON_WRITES = re.compile(
    r"open\([^()]*,\s*(?:mode\s*=\s*)?['\"][rb]*[wax]"
    r"|\.write_text\(|\.write_bytes\(|shutil\.(?:copy|move)"
)
_PYTHON_SHOWS_FILE = re.compile(
    r"print\(\s*(?:open\([^()]*\)\.read|Path\([^()]*\)\.read_text|inspect\.getsource)"
    r"|for\s+\w+(?:\s*,\s*\w+)?\s+in\s+(?:enumerate\()?open\("
)

_PROGRAMS: dict[str, Kind] = {
    word: kind
    for kind, words in {
        Kind.READ: "cat head tail sed awk less more nl bat cut strings xxd od tac view jq column",
        Kind.SEARCH: "grep egrep fgrep rg ag ack find fd fdfind ls ll dir tree locate which "
        "whereis wc stat file du",
        Kind.HISTORY: "diff colordiff cmp",
        Kind.WRITE: "cp mv rm mkdir touch ln chmod patch dos2unix rmdir truncate str_replace edit "
        "create insert",
        Kind.TEST: "pytest py.test tox nox nosetests unittest ctest trial runtests.py",
        Kind.ENVIRONMENT: "pip pip3 pipx uv conda mamba apt apt-get apk yum dnf npm yarn poetry "
        "env printenv export source . uname nproc free df id whoami deactivate",
        Kind.OTHER: "cd pwd pushd popd set true false sleep date exit kill pkill wait alias unset "
        "echo printf :",
    }.items()
    for word in words.split()
}
"""Program to kind; what is not here runs something."""

_GIT: dict[str, Kind] = {
    word: kind
    for kind, words in {
        Kind.HISTORY: "log show diff blame status branch reflog tag shortlog rev-parse rev-list "
        "describe",
        Kind.SEARCH: "grep ls-files ls-tree",
        Kind.WRITE: "apply checkout restore reset stash add commit clean rm mv revert cherry-pick "
        "merge rebase init config",
        Kind.ENVIRONMENT: "clone fetch pull remote submodule",
    }.items()
    for word in words.split()
}

_EXCEPTIONS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (Kind.WRITE, r"^sed\s+(?:\S+\s+)*?(?:-\w*i|--in-place)|^perl\s+-\w*i"),
        (Kind.ENVIRONMENT, r"^(?:\S*/)?python[\d.]*\s+-m\s+(?:pip|venv|ensurepip|site)\b"),
        (Kind.ENVIRONMENT, r"^(?:\S*/)?python[\d.]*\s+(?:--version|-V)\s*$"),
        (Kind.ENVIRONMENT, r"^(?:\S*/)?python[\d.]*\s+\S*setup\.py\s+(?:install|develop)\b"),
        (
            Kind.TEST,
            r"^(?:\S*/)?python[\d.]*\s+(?:-\w+\s+)*-m\s+(?:pytest|unittest|nose|doctest)\b",
        ),
        (Kind.TEST, r"^(?:\S*/)?python[\d.]*\s+(?:-\w+\s+)*-m\s+django\s+test\b"),
        (Kind.TEST, r"^(?:\S*/)?python[\d.]*\s+\S*(?:runtests\.py|manage\.py\s+test|bin/test)\b"),
        (Kind.TEST, r"^(?:make|npm|cargo|go)\s+(?:run\s+)?test\b"),
    )
)
"""What the first word alone would get wrong; tried first, in order."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a command, and the text of its heredoc if it has one."""

    text: str
    heredoc: str = ""


@lru_cache(maxsize=65536)
def kind_of(command: str) -> Kind:
    """Return the kind of a whole command."""
    kinds = kinds_of_statements(command)
    telling = [kind for kind in kinds if kind is not Kind.OTHER]
    if Kind.SUBMIT in telling:
        return Kind.SUBMIT
    return telling[-1] if telling else Kind.OTHER


def kinds_of_statements(command: str) -> list[Kind]:
    """Return the kind of every statement of `command`, in order."""
    kinds = []
    scripts: dict[str, str] = {}
    for statement in statements(command):
        if statement.heredoc and (target := _TO_FILE.search(statement.text)):
            scripts[(target.group(1) or "").strip("'\"")] = statement.heredoc
        kinds.append(_kind_of_statement(statement, scripts))
    return kinds


def statements(command: str) -> list[Statement]:
    """Return the statements of `command`; heredoc bodies are taken out of the text."""
    bodies: list[str] = []

    def taken(match: re.Match[str]) -> str:
        bodies.append(match.group(4))
        return f"<<{len(bodies) - 1}{match.group(3)}"

    found = []
    for part in _split(_HEREDOC.sub(taken, command), ("&&", "||", ";", "\n")):
        text = part.strip()
        if text and not text.startswith("#"):
            number = re.search(r"<<(\d+)", text)
            body = bodies[int(number[1])] if number and int(number[1]) < len(bodies) else ""
            found.append(Statement(text=text, heredoc=body))
    return found


def _split(text: str, separators: tuple[str, ...]) -> list[str]:
    """Split at separators that stand outside quotes and parentheses."""
    parts, start, quote, depth, i = [], 0, "", 0, 0
    while i < len(text):
        char = text[i]
        if char == "\\" and quote != "'":
            i += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "({":
            depth += 1
        elif char in ")}":
            depth = max(depth - 1, 0)
        elif depth == 0:
            for separator in separators:
                if text.startswith(separator, i):
                    parts.append(text[start:i])
                    i += len(separator) - 1
                    start = i + 1
                    break
        i += 1
    parts.append(text[start:])
    return parts


def _kind_of_statement(statement: Statement, scripts: dict[str, str]) -> Kind:
    stages = [stage.strip() for stage in _split(statement.text, ("|",))]
    source = _PREFIX.sub("", stages[0].lstrip("({ "))
    if SUBMIT_SENTINEL in statement.text:
        return Kind.SUBMIT
    if _PYTHON.match(source) and (kind := _python_kind(source, statement, scripts)):
        return kind
    unquoted = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", "Q", statement.text)
    if _TO_FILE.search(unquoted):
        return Kind.WRITE
    for kind, pattern in _EXCEPTIONS:
        if pattern.search(source):
            return kind
    words = source.split()
    if words and words[0] == "git":
        commands = (word for word in words[1:] if not word.startswith("-"))
        return _GIT.get(next(commands, ""), Kind.RUN)
    program = words[0].rsplit("/", 1)[-1] if words else ""
    return _PROGRAMS.get(program, Kind.RUN)


def _python_kind(source: str, statement: Statement, scripts: dict[str, str]) -> Kind | None:
    """Return the kind of Python code that stands in the command; None where only rules can tell."""
    script = re.match(r"\S+\s+(?:-\w+\s+)*([^\s-]\S*\.py)\b", source)
    code = scripts.get(script[1]) if script else None
    if code is None and (statement.heredoc or re.match(r"\S+\s+-c\b", source)):
        code = statement.heredoc or source
    if code is None:
        return None
    if _PYTHON_WRITES.search(code):
        return Kind.WRITE
    return Kind.READ if _PYTHON_SHOWS_FILE.search(code) else Kind.RUN


_NETWORK = re.compile(
    r"\b(?:pip3?|uv\s+pip|conda|mamba|npm|apt-get|apt)\s+(?:-\S+\s+)*(?:install|download|update)\b"
    r"|\b(?:curl|wget)\s+\S|\bgit\s+(?:clone|fetch|pull|remote\s+add)\b"
)
_FUTURE = re.compile(
    r"\bgit\s+(?:-\S+\s+)*(?:log|show|diff|rev-list|grep|branch|checkout|cherry-pick)\b[^\n|;&]*"
    r"(?:--all\b|--remotes\b|\borigin/|\bupstream/|\bFETCH_HEAD\b|\bORIG_HEAD\b|\brefs/)"
    r"|\bgit\s+(?:reflog|fsck|stash\s+(?:list|show|pop|apply))\b"
)
_HASH = re.compile(
    r"\bgit\s+(?:-\S+\s+)*(?:show|diff|checkout|cherry-pick|cat-file)\b[^\n|;&]*?\b"
    r"(?=[0-9a-f]*\d)([0-9a-f]{7,40})\b"
)


def fetches_from_network(command: str) -> bool:
    """Return whether the command installs or downloads something."""
    return _NETWORK.search(command) is not None


def looks_at_other_commits(command: str) -> bool:
    """Return whether the command looks beyond the checked-out history."""
    return _FUTURE.search(command) is not None


def named_commit(command: str) -> str | None:
    """Return the commit hash that a git command names, if it names one."""
    match = _HASH.search(command)
    return match[1] if match else None
