"""The toy benchmark's rows, in SWE-bench v5's format.

Owns how an instance's source becomes a row: patches, the evaluation script. Base commits and test
lists are derived data (`instances.json`, written by `derive`), because they take git and test runs
to find; a test derives them again.
"""

import difflib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.benchmarks.toy.sources import (
    TEST_RUNNER,
    InstanceSource,
    RepoSource,
    Tree,
    edited,
    history_before,
    repo_names,
    repo_source,
)

DERIVED = Path(__file__).parent / "instances.json"
LOG_PARSER = "parse_log_pytest"
START = ": '>>>>> Start Test Output'"
END = ": '>>>>> End Test Output'"


def toy_rows() -> list[dict[str, Any]]:
    """Return the rows of all toy instances, ordered by id."""
    derived = _derived()
    return [
        toy_row(repo_source(name), index, derived[instance.instance_id])
        for name in repo_names()
        for index, instance in enumerate(repo_source(name).instances)
    ]


def toy_row(repo: RepoSource, index: int, derived: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one instance.

    Args:
        repo: the repository.
        index: the instance's place in it, from 0.
        derived: `base_commit`, `FAIL_TO_PASS`, `PASS_TO_PASS`.
    """
    instance = repo.instances[index]
    base = history_before(repo, index)[-1].tree
    test_patch = unified_diff(base, edited(base, instance.hidden))
    return {
        "repo": f"toy/{repo.name}",
        "instance_id": instance.instance_id,
        "base_commit": derived["base_commit"],
        "patch": unified_diff(base, edited(base, instance.fix)),
        "test_patch": test_patch,
        "problem_statement": instance.problem,
        "hints_text": instance.hints,
        "created_at": _timestamp(instance),
        "version": instance.version,
        "FAIL_TO_PASS": json.dumps(list(derived["FAIL_TO_PASS"])),
        "PASS_TO_PASS": json.dumps(list(derived["PASS_TO_PASS"])),
        "environment_setup_commit": derived["base_commit"],
        "difficulty": instance.difficulty,
        "eval_script": eval_script(instance, str(derived["base_commit"]), test_patch),
        "log_parser": LOG_PARSER,
        "eval_type": "pass_and_fail",
        "image": f"planprune/toy.{repo.name}:latest",
    }


def unified_diff(before: Tree, after: Tree) -> str:
    """Return the changes of existing files as a patch that `git apply` takes."""
    out = []
    for path in sorted(after):
        if before[path] == after[path]:
            continue
        lines = difflib.unified_diff(
            before[path].splitlines(keepends=True),
            after[path].splitlines(keepends=True),
            f"a/{path}",
            f"b/{path}",
        )
        out.append(f"diff --git a/{path} b/{path}\n" + "".join(lines))
    return "".join(out)


def eval_script(instance: InstanceSource, base_commit: str, test_patch: str) -> str:
    """Return the script that tests what is in `$TESTBED`, by default /testbed.

    It has the shape of the official ones; but it names no fixed place and writes nothing to the
    home folder, because local gradings run beside each other.
    """
    tests = " ".join(sorted({edit.path for edit in instance.hidden}))
    restore = f"git checkout {base_commit} {TEST_RUNNER} {tests}"
    return "\n".join(
        [
            "#!/bin/bash",
            "set -uxo pipefail",
            'cd "${TESTBED:-/testbed}" || exit 1',
            "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'",
            "export PYTHONDONTWRITEBYTECODE=1",
            "git status",
            "git show --stat",
            f"git -c core.fileMode=false diff {base_commit}",
            restore,
            "git apply -v - <<'EOF_114329324912'",
            test_patch + "EOF_114329324912",
            START,
            f"python3 {TEST_RUNNER}",
            END,
            restore,
            "",
        ]
    )


def _timestamp(instance: InstanceSource) -> str:
    reported = datetime.fromtimestamp(instance.date - 2 * 86_400, tz=UTC)
    return reported.strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def _derived() -> dict[str, dict[str, Any]]:
    derived: dict[str, dict[str, Any]] = json.loads(DERIVED.read_text(encoding="utf-8"))
    return derived
