"""Grading with the official SWE-bench harness, in our sandboxes instead of its Docker client.

Owns the only import of `swebench`. What decides a result is theirs and called as it is: the test
specification, the apply commands in their order, the log parsers, the report, the classifier of
environment failures. What runs them is ours: a sandbox, one time limit, one ordered stream. Does
not know where grades are kept, nor how often a grading is tried.
"""

import contextlib
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pipeline.grading.disturbance import disturbance, exit_code_of_tests
from pipeline.grading.logged_run import (
    LOG_LIMIT_BYTES,
    READ_TIMEOUT_S,
    run_logged,
    scratch_in,
)
from pipeline.grading.run_settings import run_settings_in
from pipeline.grading.verdict import (
    Grade,
    from_report,
    has_content,
    infra_failed,
    last_line,
    not_applied,
    out_of_bounds,
    out_of_time,
    without_patch,
)
from pipeline.protocols import CommandResult, Sandbox
from pipeline.records.failure import SandboxError
from pipeline.records.patch import patch_bytes

APPLY_TIMEOUT_S = 600.0
START_OF_TESTS, END_OF_TESTS = ">>>>> Start Test Output", ">>>>> End Test Output"
NO_REPOSITORY = 97
"""Exit status of our apply script where there is no repository to apply anything to."""


class Official(NamedTuple):
    """What we call of the harness."""

    version: str
    apply_commands: tuple[str, ...]
    make_test_spec: Callable[[dict[str, Any]], Any]
    get_eval_report: Callable[..., dict[str, Any]]
    get_logs_eval: Callable[[Any, str], tuple[dict[str, str], bool]]
    classify_text: Callable[[str], tuple[str, str] | None]
    environment_tier: str


@cache
def official() -> Official:
    """Return the harness, imported once a process: it takes seconds and 200 MB."""
    with _no_dotenv():
        import swebench
        from swebench.harness.grading import get_eval_report, get_logs_eval
        from swebench.harness.infra_failure import TIER_ENVIRONMENT, classify_text
        from swebench.harness.run_evaluation import GIT_APPLY_CMDS
        from swebench.harness.utils import make_test_spec
    return Official(
        version=str(swebench.__version__),
        apply_commands=tuple(GIT_APPLY_CMDS),
        make_test_spec=make_test_spec,
        get_eval_report=get_eval_report,
        get_logs_eval=get_logs_eval,
        classify_text=classify_text,
        environment_tier=TIER_ENVIRONMENT,
    )


def harness_version() -> str:
    """Return the installed harness's version, without importing it."""
    from importlib.metadata import version

    return version("swebench")


def grade_log(test_output: Path, row: Mapping[str, Any], patch: str | None) -> dict[str, Any]:
    """Return the official per-instance report for a test log on disk.

    Raises:
        FileNotFoundError: there is no such log.
        KeyError: the row lacks a column of the v5 format; the message names it.
    """
    harness = official()
    spec = harness.make_test_spec(dict(row))
    prediction = {
        "instance_id": row["instance_id"],
        "model_name_or_path": "planprune",
        "model_patch": patch,
    }
    report = harness.get_eval_report(
        test_spec=spec,
        prediction=prediction,
        test_log_path=str(test_output),
        include_tests_status=True,
    )
    return dict(report[row["instance_id"]])


def n_statuses_in(test_output: Path, row: Mapping[str, Any]) -> int | None:
    """Return how many tests have a status in a log; None where the log is not complete.

    0 also where the statuses contradict the test command's exit status, as the harness has it.
    """
    log = test_output.read_text(encoding="utf-8", errors="replace")
    if not (START_OF_TESTS in log and END_OF_TESTS in log):
        return None
    statuses, _ = official().get_logs_eval(official().make_test_spec(dict(row)), str(test_output))
    return len(statuses)


def classified(test_output: str) -> tuple[str, bool] | None:
    """Return what the official classifier finds broken in a test log; None: nothing.

    The second value says whether it is surely the environment, which no patch can break.
    """
    found = official().classify_text(test_output)
    return (found[0], found[1] == official().environment_tier) if found else None


def eval_script(row: Mapping[str, Any]) -> str:
    """Return the script that the harness would run for `row`.

    It is the row's own script, with the test command's exit status recorded after the end marker.
    """
    return str(official().make_test_spec(dict(row)).eval_script)


def grade_patch(
    sandbox: Sandbox,
    row: Mapping[str, Any],
    patch: str | None,
    *,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    wheels: Sequence[Path] = (),
) -> Grade:
    """Apply `patch` in a fresh sandbox, run the instance's tests, and return the grade.

    Args:
        timeout_s: limit of the evaluation script alone.
        variables: set for the evaluation script, beside the sandbox's own.
        wheels: files that pip may install from in the evaluation script.

    Raises:
        SandboxError: the sandbox broke; nothing is known about the patch.
        DiskError: its disk is full.
    """
    if patch is None or not has_content(patch):
        return without_patch(patch)
    started = time.monotonic()
    folder = scratch_in(sandbox)
    applied = _apply(sandbox, patch, folder)
    if applied.returncode != 0:
        grade = not_applied(patch, output=applied.output, seconds=time.monotonic() - started)
        return replace(grade, test_settings=run_settings_in(patch))
    variables = {**(variables or {}), **_upload(sandbox, wheels, folder)}
    ran = run_logged(sandbox, eval_script(row), folder, variables, timeout_s=timeout_s)
    grade = _verdict(row, patch, ran, timeout_s=timeout_s, seconds=time.monotonic() - started)
    return replace(
        grade,
        apply_command=last_line(applied.output),
        test_exit_code=exit_code_of_tests(ran.output),
        test_settings=run_settings_in(patch),
    )


def _verdict(
    row: Mapping[str, Any], patch: str, ran: CommandResult, *, timeout_s: float, seconds: float
) -> Grade:
    """Return the grade that a test run stands for, all that it printed in `ran.output`."""
    if ran.timed_out:
        notice = f"\n\nTimeout error: {timeout_s:g} seconds exceeded."
        return out_of_time(patch, limit_s=timeout_s, output=ran.output + notice, seconds=seconds)
    if ran.dropped_bytes:
        return out_of_bounds(patch, limit_bytes=LOG_LIMIT_BYTES, output=ran.output, seconds=seconds)
    if (disturbed := disturbance(ran, ran.output)) is not None:
        return infra_failed(patch, reason=disturbed, seconds=seconds, output=ran.output)
    with tempfile.TemporaryDirectory(prefix="grade-") as local:
        log = Path(local) / "test_output.txt"
        log.write_text(ran.output, encoding="utf-8", newline="")
        report = grade_log(log, row, patch)
        n_statuses = n_statuses_in(log, row)
    grade = from_report(report, output=ran.output, seconds=seconds)
    return replace(grade, n_statuses=n_statuses)


def apply_script(patch_path: str, commands: tuple[str, ...]) -> str:
    """Return a bash script that applies a patch as the harness does, in one command.

    Each command is tried in turn, on a tree cleaned of what the one before left behind; at last a
    patch that is found applied already is accepted. The last line says which one did it.
    `safe.directory` is set because a repository may belong to another user than ours, where the
    harness is always root.
    """
    patch = shlex.quote(patch_path)
    lines = [
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'",
        f"git rev-parse --git-dir || exit {NO_REPOSITORY}",
    ]
    for number, command in enumerate(commands):
        if number:
            lines.append("git checkout -- . ; git clean -fd")
        lines.append(f"{command} {patch} && echo {shlex.quote(command)} && exit 0")
    already = "git apply --check --reverse"
    lines.append(f"{already} {patch} && echo {shlex.quote(already)} && exit 0")
    lines.append("exit 1")
    return "\n".join(lines) + "\n"


def _apply(sandbox: Sandbox, patch: str, folder: str) -> CommandResult:
    patch_path = f"{folder}/patch.diff"
    sandbox.upload(patch_bytes(patch), patch_path)
    script = apply_script(patch_path, official().apply_commands)
    applied = sandbox.execute(script, timeout_s=APPLY_TIMEOUT_S)
    if applied.timed_out or applied.returncode == NO_REPOSITORY:
        raise SandboxError(f"cannot apply patches in {sandbox.workdir}: {applied.output[-500:]!r}")
    return applied


def _upload(sandbox: Sandbox, wheels: Sequence[Path], folder: str) -> dict[str, str]:
    """Put `wheels` into the sandbox and return the variable by which pip finds them."""
    if not wheels:
        return {}
    where = f"{folder}/wheels"
    made = sandbox.execute(f"mkdir {shlex.quote(where)}", timeout_s=READ_TIMEOUT_S)
    if made.returncode != 0:
        raise SandboxError(f"no folder for wheels in the sandbox: {made.output.strip()!r}")
    for wheel in wheels:
        sandbox.upload(wheel.read_bytes(), f"{where}/{wheel.name}")
    return {"PIP_FIND_LINKS": where}


@contextlib.contextmanager
def _no_dotenv() -> Iterator[None]:
    """Keep the harness's import from reading a `.env` file into this process's environment."""
    dotenv: ModuleType = __import__("dotenv")
    real = dotenv.load_dotenv
    dotenv.load_dotenv = lambda *_, **__: False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        dotenv.load_dotenv = real  # type: ignore[attr-defined]
