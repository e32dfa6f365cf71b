"""Writes what is derived from the sources: `instances.json` and `recipes.json`.

    python -m pipeline.benchmarks.toy.derive [--check]

Run after every change under `repos/`. Base commits come from building the repositories; test lists
from running each evaluation script on the base, and on the base with the gold patch, as they are
defined: FAIL_TO_PASS fails before and passes after, PASS_TO_PASS passes both times. Line numbers in
recipes come from the files as they are at each step.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.toy.checkout import build
from pipeline.benchmarks.toy.recipes import RECIPES, recipe_of
from pipeline.benchmarks.toy.rows import DERIVED, toy_row
from pipeline.benchmarks.toy.sources import (
    RepoSource,
    Tree,
    edited,
    history_before,
    repo_names,
    repo_source,
)
from pipeline.host.environment import environment
from pipeline.host.files import replace_bytes
from pipeline.host.process import run_command

TESTS_TIMEOUT_S = 120.0
_NOT_YET: Mapping[str, Any] = {"FAIL_TO_PASS": [], "PASS_TO_PASS": []}


def derived(repo: RepoSource, index: int, scratch: Path) -> dict[str, Any]:
    """Return an instance's base commit and test lists, found by building and running it.

    Raises:
        ValueError: no hidden test fails before the fix, or a test fails after it.
    """
    instance = repo.instances[index]
    history = history_before(repo, index)
    target = scratch / instance.instance_id
    base_commit = build(history, target)
    row = toy_row(repo, index, {"base_commit": base_commit, **_NOT_YET})
    before = run_tests(row, target)
    write_tree(edited(history[-1].tree, instance.fix), target)
    after = run_tests(row, target)
    broken = [name for name, status in after.items() if status != "PASSED"]
    fail_to_pass = sorted(name for name in after if before.get(name) != "PASSED")
    if broken or not fail_to_pass:
        raise ValueError(f"{instance.instance_id}: after the fix fail {broken}; F2P {fail_to_pass}")
    return {
        "base_commit": base_commit,
        "FAIL_TO_PASS": fail_to_pass,
        "PASS_TO_PASS": sorted(set(after) - set(fail_to_pass)),
    }


def run_tests(row: Mapping[str, Any], testbed: Path) -> dict[str, str]:
    """Return test -> status after running a row's evaluation script on a checkout."""
    env = {**environment(), "TESTBED": str(testbed)}
    command = ["bash", "-c", row["eval_script"]]
    done = run_command(command, cwd=testbed, env=env, timeout_s=TESTS_TIMEOUT_S)
    lines = (line.split() for line in done.text.splitlines())
    return {words[1]: words[0] for words in lines if words and words[0] in ("PASSED", "FAILED")}


def write_tree(tree: Tree, target: Path) -> None:
    """Write files over those of a checkout."""
    for path, text in tree.items():
        (target / path).write_text(text, encoding="utf-8")


def files() -> dict[Path, bytes]:
    """Return what the derived files should contain."""
    instances: dict[str, Any] = {}
    recipes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="toy-") as scratch:
        for name in repo_names():
            repo = repo_source(name)
            for index, instance in enumerate(repo.instances):
                instances[instance.instance_id] = derived(repo, index, Path(scratch))
                recipes[instance.instance_id] = recipe_of(repo, index)
    return {DERIVED: _json(instances), RECIPES: _json(recipes)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the derived files, or with `--check` compare them; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the toy benchmark's derived files.")
    parser.add_argument("--check", action="store_true", help="compare only; fail if they differ")
    options = parser.parse_args(arguments)
    stale = [
        (path, data)
        for path, data in files().items()
        if not path.is_file() or path.read_bytes() != data
    ]
    for path, data in stale:
        if not options.check:
            replace_bytes(path, data)
        sys.stdout.write(f"{'out of date' if options.check else 'written'}: {path}\n")
    return int(options.check and bool(stale))


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    sys.exit(main())
