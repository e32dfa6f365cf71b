"""Harbor's tasks: a script grades what a run made of the working directory, in a fresh sandbox.

The work travels as a patch. Where the task's verifier applies it itself, it finds it in its place;
else it is applied to the fresh working directory before the tests come, and what the run did
elsewhere in its sandbox stays behind.
"""

import base64
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.agent.run_diff import first_commit_to_submit_from, run_diff
from pipeline.benchmarks.format import Checkout
from pipeline.benchmarks.harbor.tasks import files_in
from pipeline.benchmarks.rows import DatasetError, check_identities, place_of, read_rows
from pipeline.grading.disturbance import disturbance
from pipeline.grading.evaluation import EvalSite, OpenSandbox
from pipeline.grading.logged_run import LOG_LIMIT_BYTES, READ_TIMEOUT_S, run_logged, scratch_in
from pipeline.grading.verdict import (
    Grade,
    infra_failed,
    last_line,
    not_applied,
    out_of_bounds,
    out_of_time,
    ungraded_report,
)
from pipeline.protocols import CommandResult, Sandbox
from pipeline.records.failure import GradeClass, SandboxError
from pipeline.records.patch import patch_bytes

COLUMNS = ("instance_id", "repo", "problem_statement", "image", "tests", "tests_sha256")
APPLY_TIMEOUT_S = 600.0
SOLUTION_TIMEOUT_S = 3600.0
"""Of a solution whose task sets no limit."""
_VERIFIER = "/logs/verifier"
_REWARD_LIMIT_BYTES = 1 << 20
# A file is put back to the commit that the diff is against: an image may hold it changed.
_APPLY = """export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
if top=$(git rev-parse --show-toplevel 2>/dev/null); then
  cd "$top" && git apply --numstat -z {patch} | while IFS=$'\\t' read -r -d '' _ _ path; do
    git checkout --quiet HEAD -- "$path" 2>/dev/null || rm -rf -- "$path"
  done
fi
git apply --whitespace=nowarn {patch}
"""


class HarborGrader:
    """Runs a task's own tests on the work of a run."""

    scored = True

    def version(self, row: Mapping[str, Any]) -> str:
        """Return the version of these rules, and the hash of the row's tests."""
        return f"harbor 1:{row['tests_sha256']}"

    def prepare(self) -> None:
        """Prepare nothing."""

    def gold(self, row: Mapping[str, Any], start: OpenSandbox) -> str:
        """Return what the row's solution does to a fresh sandbox, taken as a run's work is."""
        if not row.get("solution"):
            return ""
        limit_s = float(row.get("wall_limit_s") or SOLUTION_TIMEOUT_S)
        with start() as sandbox:
            commit = first_commit_to_submit_from(sandbox, timeout_s=APPLY_TIMEOUT_S)
            _put(sandbox, str(row["solution"]), "/solution")
            variables = {"DEBIAN_FRONTEND": "noninteractive", **_variables(row, "solution_env")}
            script = "chmod +x /solution/solve.sh && exec /solution/solve.sh"
            run_logged(sandbox, script, scratch_in(sandbox), variables, timeout_s=limit_s)
            return run_diff(sandbox, commit, timeout_s=APPLY_TIMEOUT_S).patch

    def grade(
        self,
        row: Mapping[str, Any],
        patch: str,
        start: OpenSandbox,
        site: EvalSite,  # noqa: ARG002 (tests say by their row whether they have a network)
        *,
        timeout_s: float,
    ) -> Grade:
        """Return the grade that the task's script gives; its own time limit comes first."""
        limit_s = float(row.get("grade_timeout_s") or timeout_s)
        with start() as sandbox:
            folder = scratch_in(sandbox)
            delivered = _deliver(sandbox, row, patch, folder)
            if delivered.returncode != 0:
                output, seconds = delivered.output, delivered.wall_s
                return not_applied(patch, output=output, seconds=seconds)
            _put(sandbox, str(row["tests"]), "/tests")
            variables = _variables(row, "verifier_env")
            script = "chmod +x /tests/test.sh && exec /tests/test.sh"
            ran = run_logged(sandbox, script, folder, variables, timeout_s=limit_s)
            rewards = _rewards(sandbox)
        if ran.timed_out:
            return out_of_time(patch, limit_s=limit_s, output=ran.output, seconds=ran.wall_s)
        if ran.dropped_bytes:
            limit = LOG_LIMIT_BYTES
            return out_of_bounds(patch, limit_bytes=limit, output=ran.output, seconds=ran.wall_s)
        disturbed = disturbance(ran, ran.output)
        return verdict(patch, rewards if disturbed is None else disturbed, ran)


def verdict(patch: str, rewards: Mapping[str, float] | str, ran: CommandResult) -> Grade:
    """Return the grade that `rewards` stand for; text says why there are none.

    A verifier that gives no reward, or a negative one, has failed before it could grade.
    """
    reward = -1.0 if isinstance(rewards, str) else _reward_in(rewards)
    if isinstance(rewards, str) or reward is None or reward < 0:
        reason = rewards if isinstance(rewards, str) else f"the verifier gave {dict(rewards)}"
        return infra_failed(patch, reason=reason, seconds=ran.wall_s, output=ran.output)
    if rewards.get("apply_failed"):
        return not_applied(patch, output=ran.output, seconds=ran.wall_s)
    return Grade(
        grade_class=GradeClass.RESOLVED if reward >= 1 else GradeClass.UNRESOLVED,
        score=min(reward, 1.0),
        score_parts=dict(rewards),
        patch_exists=True,
        patch_applied=True,
        f2p_passed=_count(rewards, "f2p_passed"),
        f2p_total=_count(rewards, "f2p_total"),
        p2p_passed=_count(rewards, "p2p_passed"),
        p2p_total=_count(rewards, "p2p_total"),
        seconds=ran.wall_s,
        report={
            **ungraded_report(patch),
            "patch_successfully_applied": True,
            "resolved": reward >= 1,
            "rewards": dict(rewards),
        },
        test_output=ran.output,
        test_exit_code=ran.returncode,
    )


def rewards_in(data: bytes, name: str) -> Mapping[str, float] | str:
    """Return the rewards in a verifier's file by name, or what is wrong with it.

    A file that ends in `.json` has an object of numbers or a number, another one a number.
    """
    try:
        value = json.loads(data) if name.endswith(".json") else float(data)
        given = value if isinstance(value, dict) else {"reward": value}
        rewards = {key: float(number) for key, number in given.items()}
    except (ValueError, TypeError, OverflowError):
        rewards = {}
    if not rewards or not all(map(math.isfinite, rewards.values())):
        return f"the verifier left no number in {name}: {data[:100]!r}"
    return rewards


def _count(rewards: Mapping[str, float], name: str) -> int | None:
    return int(rewards[name]) if name in rewards else None


def _reward_in(rewards: Mapping[str, float]) -> float | None:
    """Return the reward that counts: the one called so, or else the only one."""
    if "reward" in rewards or len(rewards) != 1:
        return rewards.get("reward")
    return next(iter(rewards.values()))


def _rewards(sandbox: Sandbox) -> Mapping[str, float] | str:
    for name in ("reward.json", "reward.txt"):
        try:
            data = sandbox.download(f"{_VERIFIER}/{name}", limit_bytes=_REWARD_LIMIT_BYTES)
        except FileNotFoundError:
            continue
        return rewards_in(data, name)
    return f"the verifier ended without a reward in {_VERIFIER}"


def _deliver(sandbox: Sandbox, row: Mapping[str, Any], patch: str, folder: str) -> CommandResult:
    """Bring the work into a fresh sandbox, which has no reward yet."""
    made = sandbox.execute(
        f"rm -rf {_VERIFIER} /tests && mkdir -p {_VERIFIER} /logs/agent /logs/artifacts",
        timeout_s=READ_TIMEOUT_S,
    )
    if made.returncode != 0:
        raise SandboxError(f"no folder for the verifier: {made.output.strip()!r}")
    path = str(row.get("patch_path") or f"{folder}/work.patch")
    sandbox.upload(patch_bytes(patch), path)
    if row.get("patch_path"):
        return made
    applied = sandbox.execute(_APPLY.format(patch=shlex.quote(path)), timeout_s=APPLY_TIMEOUT_S)
    if applied.timed_out:
        raise SandboxError(f"cannot apply the work in {APPLY_TIMEOUT_S:g} s: {applied.output!r}")
    return applied


def _put(sandbox: Sandbox, archive: str, folder: str) -> None:
    """Write the files of an archive below `folder`, without a program of the image's."""
    runnable = []
    for name, data, may_be_run in files_in(base64.b64decode(archive)):
        sandbox.upload(data, f"{folder}/{name}")
        runnable += [f"{folder}/{name}"] if may_be_run else []
    if runnable:
        made = sandbox.execute(f"chmod +x -- {shlex.join(runnable)}", timeout_s=READ_TIMEOUT_S)
        if made.returncode != 0:
            raise SandboxError(f"cannot prepare {folder}: {last_line(made.output)}")


def _variables(row: Mapping[str, Any], column: str) -> dict[str, str]:
    return dict(json.loads(row.get(column) or "{}"))


class Harbor:
    """Rows that `stage dataset` makes of task folders."""

    checkout: Checkout | None = None
    grader = HarborGrader()

    def rows(self, dataset: Path | None) -> list[dict[str, Any]]:
        """Return the rows of `dataset`."""
        if dataset is None:
            raise DatasetError("no dataset file is named")
        rows = read_rows(dataset)
        self.check(rows, source=str(dataset))
        return rows

    def check(self, rows: Sequence[Mapping[str, Any]], *, source: str) -> None:
        """Raise `DatasetError` unless every row has what is read of it."""
        for number, row in enumerate(rows, start=1):
            missing = [column for column in COLUMNS if not row.get(column)]
            if missing:
                place = place_of(row, number, source)
                raise DatasetError(
                    f"{place}: missing {', '.join(missing)}; rows of Harbor's tasks are made by "
                    "python -m pipeline.stage dataset FOLDER --to FILE.parquet"
                )
        check_identities(rows, source=source)


FORMAT = Harbor()
