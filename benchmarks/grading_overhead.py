"""What grading a patch costs beyond the evaluation script itself, and where that goes.

    python benchmarks/grading_overhead.py IMAGE.sif SCRATCH_FOLDER [N]

Grades the gold patch of a toy instance N times (default 20) in fresh sandboxes of both kinds, and
runs the very same script once more alone, in a sandbox of its own with the patch applied. Prints
one JSON object: medians in milliseconds, and the overhead as a share of a script of one minute,
since real scripts take minutes and the toy's a moment.
"""

import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from containers import OneImage
from pipeline.benchmarks.toy.checkout import materialise
from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.grading.harness import apply_script, eval_script, grade_patch, official
from pipeline.protocols import CommandResult, Sandbox, SandboxFactory
from pipeline.records.failure import GradeClass
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.local import LocalSandboxes

ORDER = ("scratch", "apply", "script")
MINUTE_MS = 60_000


class Watched:
    """A sandbox that notes how long everything takes that grading asks of it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.workdir = sandbox.workdir
        self.parts: dict[str, float] = defaultdict(float)
        self._sandbox = sandbox
        self._commands = iter(ORDER)

    def execute(self, command: str, *, timeout_s: float) -> CommandResult:
        started = time.perf_counter()
        result = self._sandbox.execute(command, timeout_s=timeout_s)
        self.parts[next(self._commands)] += time.perf_counter() - started
        return result

    def upload(self, data: bytes, path: str) -> None:
        started = time.perf_counter()
        self._sandbox.upload(data, path)
        self.parts["transfers"] += time.perf_counter() - started

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        started = time.perf_counter()
        data = self._sandbox.download(path, limit_bytes=limit_bytes)
        self.parts["transfers"] += time.perf_counter() - started
        return data

    def stop(self) -> None:
        self._sandbox.stop()


def script_alone(factory: SandboxFactory, row: dict[str, Any]) -> float:
    """Return the seconds that the evaluation script takes, with the patch applied before."""
    sandbox = factory.start(row, purpose="grade")
    sandbox.upload(row["patch"].encode(), "/tmp/gold.diff")
    sandbox.execute(apply_script("/tmp/gold.diff", official().apply_commands), timeout_s=60)
    sandbox.upload(eval_script(row).encode(), "/tmp/eval.sh")
    ran = sandbox.execute("/bin/bash /tmp/eval.sh", timeout_s=600)
    sandbox.stop()
    return ran.wall_s


def graded(factory: SandboxFactory, row: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of one whole grading, by part."""
    started = time.perf_counter()
    sandbox = Watched(factory.start(row, purpose="grade"))
    ready = time.perf_counter()
    grade = grade_patch(sandbox, row, row["patch"], timeout_s=600)
    done = time.perf_counter()
    sandbox.stop()
    stopped = time.perf_counter()
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output
    parts = {"start": ready - started, **sandbox.parts, "stop": stopped - done}
    return {**parts, "report": stopped - started - sum(parts.values()), "all": stopped - started}


def figures(factory: SandboxFactory, row: dict[str, Any], times: int) -> dict[str, float]:
    graded(factory, row)  # extracts the image, imports the harness
    samples, alone = [], []
    for _ in range(times):  # in turns, so that other load meets both
        samples.append(graded(factory, row))
        alone.append(script_alone(factory, row))
    found = {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
    found["script_alone"] = statistics.median(alone)
    milliseconds = {f"{name}_ms": round(1000 * seconds, 1) for name, seconds in found.items()}
    overhead_ms = 1000 * (found["all"] - found["script_alone"])
    return {
        **milliseconds,
        "overhead_ms": round(overhead_ms, 1),
        "overhead_of_a_minute": round(overhead_ms / MINUTE_MS, 5),
    }


def main(sif: Path, scratch: Path, times: int) -> None:
    row = toy_rows()[0]
    local = LocalSandboxes(scratch / "local", materialise)
    containers = ApptainerSandboxes(
        scratch / "boxes", OneImage(sif), checkout=materialise, keep_free_bytes=1 << 30
    )
    kinds = {"local": local, "apptainer": containers}
    print(json.dumps({kind: figures(kinds[kind], row, times) for kind in kinds}, indent=1))


if __name__ == "__main__":
    times = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), times)
