"""What kind of thing a simple command does, by tables of programs and their options."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pipeline.shell.syntax import Stage


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


def words(text: str) -> frozenset[str]:
    """Return the words of a table's row."""
    return frozenset(text.split())


def _by_word(table: Mapping[Kind, str]) -> dict[str, Kind]:
    return {word: kind for kind, row in table.items() for word in row.split()}


_PROGRAMS = _by_word(
    {
        Kind.READ: "cat head tail sed awk gawk less more nl bat cut strings xxd od hexdump tac view"
        " jq column sort uniq tr open goto scroll_down scroll_up",
        Kind.SEARCH: "grep egrep fgrep zgrep rg ag ack find fd fdfind ls ll dir tree locate which "
        "whereis wc stat file du md5sum sha256sum",
        Kind.HISTORY: "diff colordiff cmp",
        Kind.WRITE: "cp mv rm mkdir touch ln chmod patch dos2unix rmdir truncate str_replace edit "
        "create insert tee apply_patch install dd",
        Kind.TEST: "pytest py.test tox nox nosetests unittest ctest trial runtests.py",
        Kind.ENVIRONMENT: "pip pip3 pipx uv conda mamba apt apt-get apk yum dnf npm yarn poetry "
        "env printenv export declare source . uname nproc free df id whoami deactivate",
        Kind.SUBMIT: "task_done",
        Kind.OTHER: "cd pwd pushd popd set true false sleep date exit kill pkill wait alias unset "
        "sequentialthinking echo printf : [ [[ test read local shift return break continue",
    }
)
"""Program to kind; what is not here runs something."""

_GIT = _by_word(
    {
        Kind.HISTORY: "log show diff blame status branch reflog tag shortlog rev-parse rev-list "
        "describe",
        Kind.SEARCH: "grep ls-files ls-tree",
        Kind.READ: "cat-file",
        Kind.WRITE: "apply checkout switch restore reset stash add commit clean rm mv revert "
        "cherry-pick merge rebase init config am format-patch",
        Kind.ENVIRONMENT: "clone fetch pull remote submodule",
    }
)

_EDITORS = {"view": Kind.READ, "create": Kind.WRITE, "str_replace": Kind.WRITE}
"""First argument of the tools `str_replace_editor` and `str_replace_based_edit_tool`."""

FILTERS = words(
    "grep egrep fgrep rg head tail sed awk gawk sort uniq cut tr wc less more cat nl tee "
    "column jq strings tac bat fold fmt expand paste rev comm md5sum sha256sum read"
)
"""Programs that pass on what comes through a pipe; any other makes an output of its own."""

_TEST_MODULES = frozenset({"pytest", "unittest", "nose", "nose2", "doctest", "tox", "nox", "trial"})
_ENVIRONMENT_MODULES = frozenset({"pip", "venv", "ensurepip", "site", "virtualenv"})
_TEST_RUNNERS = frozenset({"make", "npm", "yarn", "cargo", "go", "mvn", "gradle"})
_PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*")
_PYTHON_WRITES = re.compile(
    r"open\([^()]*,\s*(?:mode\s*=\s*)?['\"][rb]*[wax]"
    r"|\.write_text\(|\.write_bytes\(|shutil\.(?:copy|move)"
)
_PYTHON_SHOWS_FILE = re.compile(
    r"print\(\s*(?:open\([^()]*\)\.read|Path\([^()]*\)\.read_text|inspect\.getsource)"
    r"|for\s+\w+(?:\s*,\s*\w+)?\s+in\s+(?:enumerate\()?open\("
)
_OPENED = re.compile(
    r"(\w+)\s*=\s*(?:open\([^()]*\)\.read(?:lines)?\(\)|[^\n;]*\.read_text\([^()]*\)"
    r"(?:\.splitlines\(\))?|inspect\.getsource\([^()]*\))"
    r"|with\s+open\([^()]*\)\s+as\s+(\w+)"
)


class Python(NamedTuple):
    """A call of the Python interpreter."""

    module: str
    code: str | None
    """What `-c` gives."""
    script: str
    rest: tuple[str, ...]


def python_call(stage: Stage) -> Python | None:
    """Return how a stage calls Python; None where it does not."""
    if not _PYTHON.fullmatch(stage.program):
        return None
    arguments = list(stage.arguments)
    while arguments:
        word = arguments.pop(0)
        if word in {"-m", "-c"} and arguments:
            value, rest = arguments[0], tuple(arguments[1:])
            if word == "-m":
                return Python(module=value, code=None, script="", rest=rest)
            return Python(module="", code=value, script="", rest=rest)
        if word in {"-W", "-X"} and arguments:
            arguments.pop(0)
        elif not word.startswith("-"):
            return Python(module="", code=None, script=word, rest=tuple(arguments))
    return Python(module="", code=None, script="", rest=stage.arguments)


def git_words(stage: Stage) -> tuple[str, ...]:
    """Return git's subcommand and its arguments; empty where a stage does not call git."""
    if stage.program != "git":
        return ()
    left = list(stage.arguments)
    while left and left[0].startswith("-"):
        takes_value = left.pop(0) in {"-C", "-c", "--git-dir", "--work-tree"}
        if takes_value and left:
            left.pop(0)
    return tuple(left)


def has_option(stage: Stage, letter: str, *names: str) -> bool:
    """Return whether a stage has a short option `letter`, perhaps among others, or a long one."""
    return any(
        (word[1:2] not in {"-", ""} and word[0] == "-" and letter in word.partition("=")[0])
        or word.partition("=")[0] in names
        for word in stage.arguments
    )


def stage_kind(stage: Stage, scripts: Mapping[str, str]) -> Kind:
    """Return what one simple command does; `scripts` are files that the same command wrote."""
    if SUBMIT_SENTINEL in " ".join(stage.words):
        return Kind.SUBMIT
    python = python_call(stage)
    if python is not None:
        return _python_kind(python, stage, scripts)
    git = git_words(stage)
    if git:
        return _GIT.get(git[0], Kind.RUN)
    special = _SPECIAL.get(stage.program)
    kind = special(stage) if special is not None else None
    return kind or _PROGRAMS.get(stage.program, Kind.RUN if stage.words else Kind.OTHER)


def _sed(stage: Stage) -> Kind | None:
    return Kind.WRITE if has_option(stage, "i", "--in-place") else None


def _awk(stage: Stage) -> Kind | None:
    return Kind.WRITE if "inplace" in stage.arguments else None


def _perl(stage: Stage) -> Kind | None:
    if has_option(stage, "i"):
        return Kind.WRITE
    return Kind.READ if has_option(stage, "n") or has_option(stage, "p") else None


def _find(stage: Stage) -> Kind | None:
    return Kind.WRITE if "-delete" in stage.arguments else None


def _runner(stage: Stage) -> Kind | None:
    targets = [word for word in stage.arguments if not word.startswith("-")]
    tests = {"test", "check", "tests"}
    return Kind.TEST if tests & set(targets[:2]) else _PROGRAMS.get(stage.program)


def _editor(stage: Stage) -> Kind | None:
    if stage.arguments[:1] == ("view",) and _names_folder(stage.arguments[1:]):
        return Kind.SEARCH
    return _EDITORS.get(stage.arguments[0], Kind.WRITE) if stage.arguments else None


def _names_folder(arguments: Sequence[str]) -> bool:
    """Return whether a view without lines is of a folder, by the form of its name."""
    name = arguments[0].rstrip("/").rpartition("/")[2] if arguments else ""
    return len(arguments) == 1 and "." not in name and not name[:1].isupper()


def _test_script(stage: Stage) -> Kind | None:
    # `bin/test` is a project's own; plain `test` compares.
    return Kind.TEST if "/" in stage.words[0] else None


_SPECIAL: dict[str, Callable[[Stage], Kind | None]] = {
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "perl": _perl,
    "find": _find,
    "str_replace_editor": _editor,
    "str_replace_based_edit_tool": _editor,
    "test": _test_script,
    "runtests.sh": _test_script,
    **dict.fromkeys(_TEST_RUNNERS, _runner),
}
"""What the program alone would get wrong; None: what the table of programs says."""


def _python_kind(call: Python, stage: Stage, scripts: Mapping[str, str]) -> Kind:
    if call.module:
        if call.module in _TEST_MODULES or (call.module, call.rest[:1]) == ("django", ("test",)):
            return Kind.TEST
        return Kind.ENVIRONMENT if call.module in _ENVIRONMENT_MODULES else Kind.RUN
    code = call.code if call.code is not None else scripts.get(call.script)
    if code is None and not call.script:
        if {"--version", "-V"} & set(call.rest):
            return Kind.ENVIRONMENT
        code = stage.heredoc or None
    if code is not None:
        return python_code_kind(code)
    name = call.script.rpartition("/")[2]
    if name == "runtests.py" or call.script.endswith("bin/test"):
        return Kind.TEST
    if name == "manage.py" and call.rest[:1] == ("test",):
        return Kind.TEST
    installs = name == "setup.py" and bool({"install", "develop"} & set(call.rest))
    return Kind.ENVIRONMENT if installs else Kind.RUN


def python_code_kind(code: str) -> Kind:
    """Return what a piece of Python does: write files, show one, or run."""
    if _PYTHON_WRITES.search(code):
        return Kind.WRITE
    return Kind.READ if shows_file(code) else Kind.RUN


def shows_file(code: str) -> bool:
    """Return whether Python prints a file's text, directly or through a name it gave to it."""
    if _PYTHON_SHOWS_FILE.search(code):
        return True
    names = {name for pair in _OPENED.findall(code) for name in pair if name}
    if not names:
        return False
    either = rf"(?:{'|'.join(map(re.escape, sorted(names)))})"
    printed = (
        rf"print\(\s*(?:['\"][^'\"]*['\"]\.join\(\s*)?{either}(?:\[[^\n]*\]|\.read\(\))?\s*[),]"
    )
    looped = rf"for\s+[\w\s,]+\bin\s+(?:enumerate\(\s*)?{either}\b[^\n]*:\s*print\("
    return re.search(f"{printed}|{looped}", code) is not None
