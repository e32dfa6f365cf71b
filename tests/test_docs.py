"""What the pages name is there: links, commands and their flags, targets, configs, files."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
FOLDERS = ("benchmarks", "conf", "containers", "docs", "pipeline", "slurm", "tests")
EXAMPLES = {
    "conf/agent/plain.yaml",
    "conf/benchmark/checks.yaml",
    "pipeline/agent/plain/scaffold.py",
    "pipeline/benchmarks/checks/format.py",
    "conf/arm/keep_errors.yaml",
    "tests/context/test_keep_errors.py",
    "conf/sweep/mine.yaml",
    "conf/pricing/mine.yaml",
    "conf/arms/budgets.yaml",
    "tests/test_rules.py",
    "conf/site/mine.yaml",
    "conf/cluster/NAME.yaml",
}
"""Files that a page tells its reader to write, or that its example run is about."""
NO_HELP = {"pipeline.records.schema"}
"""Modules that take no arguments: they print a page."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"python -m ((?:pipeline|tests)[\w.]*\w)([^`\n]*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
TARGET = re.compile(r"(?:`|^|\s{2}|then )make ([a-z][a-z-]+)\b(?=[`\s]|$)", re.MULTILINE)
CONFIG = re.compile(r"(?<![\w.])(?:\+?(sweep|cluster|model|agent|benchmark|pricing))=([a-z]\w*)")
FILE = re.compile(rf"(?<![\w./$-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What a link into `page` may end with, by GitHub's rule."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands() -> Iterator[tuple[str, str, str]]:
    """Each page, module and rest of the line of a command that a page names."""
    for page in PAGES:
        # A line that ends with a backslash goes on.
        for module, rest in COMMAND.findall(text_of(page).replace("\\\n", " ")):
            yield page.name, module, rest.split(" # ")[0]


CITATION = re.compile(r"docs/methods\.md,\s+([A-Z][\w-]*(?:\s+[\w-]+)*)")


def test_every_heading_of_the_methods_that_is_cited_is_there() -> None:
    headings = set(re.findall(r"^#+ (.+)$", text_of(ROOT / "docs/methods.md"), re.MULTILINE))
    sources = [
        path
        for folder in ("pipeline", "tests", "benchmarks")
        for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    cited = [
        (path.name, " ".join(heading.split()))
        for path in sources
        if path != Path(__file__)
        for heading in CITATION.findall(text_of(path))
    ]
    assert len({heading for _, heading in cited}) > 10
    assert [pair for pair in cited if pair[1] not in headings] == []


def test_no_page_or_module_cites_what_users_do_not_have() -> None:
    files = [*PAGES, *(path for f in FOLDERS for path in (ROOT / f).rglob("*.py"))]
    private = re.compile(r"\b(METHODS|DESIGN|FACTS|FORMATS|STYLE)(\.md| \d|'s\b)")
    assert [
        path.name for path in files if path != Path(__file__) and private.search(text_of(path))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        seen.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(text_of(page))]
        found = [(page.parent / link).resolve() for link in links if link.endswith(".md")]
        queue += [target for target in found if target.exists() and target not in seen]
    lost = [page.name for page in (ROOT / "docs").glob("*.md") if page not in seen]
    assert not lost


def test_every_module_that_a_page_runs_exists() -> None:
    named = {(page, module) for page, module, _ in commands()}
    assert {module for _, module in named} >= {"pipeline.launch", "pipeline.analyze"}
    assert not [pair for pair in named if importlib.util.find_spec(pair[1]) is None]


def help_of(module: str, subcommand: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `python -m module [subcommand] --help` prints; it must end well."""
    command = importlib.import_module(
        module + (".__main__" if module == "pipeline.linehead" else "")
    )
    try:
        status = command.main([*([subcommand] if subcommand else []), "--help"])
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr().out
    assert status in (0, None), f"{module} {subcommand} --help"
    return printed


def test_every_command_has_help_that_names_the_flags_of_the_pages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages: dict[tuple[str, str], str] = {}
    unknown = []
    for page, module, rest in commands():
        if module.count(".") > 1 or module.startswith("tests") or module in NO_HELP:
            continue
        first = rest.split()[0] if rest.split() else ""
        subcommand = first if first in ("images", "dataset", "model") else ""
        key = (module, subcommand)
        if key not in pages:
            pages[key] = help_of(module, subcommand, capsys)
            assert pages[key].strip(), f"{module} --help prints nothing"
        offered = set(FLAG.findall(pages[key]))
        unknown += [f"{page}: {module}: {f}" for f in FLAG.findall(rest) if f not in offered]
    assert not unknown


def test_every_command_is_in_the_readme() -> None:
    readme = text_of(ROOT / "README.md")
    commands_here = {
        path.stem
        for path in (ROOT / "pipeline").glob("*.py")
        if any(
            isinstance(node, ast.FunctionDef) and node.name == "main"
            for node in ast.parse(text_of(path)).body
        )
    }
    assert "launch" in commands_here
    assert not [
        name for name in sorted(commands_here) if f"python -m pipeline.{name}" not in readme
    ]


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = {(page.name, t) for page in PAGES for t in TARGET.findall(text_of(page))}
    assert {t for _, t in named} >= {"demo", "test", "check"}
    assert not [pair for pair in named if pair[1] not in targets]


def test_every_config_that_a_page_names_exists() -> None:
    named = {(page.name, *pair) for page in PAGES for pair in CONFIG.findall(text_of(page))}
    assert {("sweep", "full500"), ("cluster", "slurm")} <= {(g, n) for _, g, n in named}
    files = {f"conf/{group}/{name}.yaml" for _, group, name in named}
    assert not [file for file in files if not ((ROOT / file).is_file() or file in EXAMPLES)]


def test_every_file_that_a_page_names_exists() -> None:
    named = {(page.name, path) for page in PAGES for path in FILE.findall(text_of(page))}
    assert ("README.md", "docs/grace.md") in named
    assert not [pair for pair in named if not ((ROOT / pair[1]).exists() or pair[1] in EXAMPLES)]


def names_in(module: str) -> set[str]:
    """Return what a module defines or imports, without importing it (it may need PyTorch)."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    words = {inner.stem for inner in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            words.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            words |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            words.add(node.id)
    return words


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda s: s.stem)
def test_every_benchmark_imports_names_that_exist(script: Path) -> None:
    missing = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(text_of(script)))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pipeline")
        for alias in node.names
        if alias.name not in names_in(node.module)
    ]
    assert not missing
