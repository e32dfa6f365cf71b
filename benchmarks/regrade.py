"""Re-grading stored test logs: ours against the harness's own functions, in one run.

    python benchmarks/regrade.py [DATA] [--rounds N]

DATA (default ../shared/data) holds `swebench_verified_v5.parquet` and `eval_logs/ID/`. Rounds of
both alternate, so that whatever else the machine does hits both alike. The harness's import is
paid once, outside the measurement, as a worker pays it. Target: at least 0.9 of the harness.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.grading.harness import grade_log, official
from pipeline.grading.verdict import from_report

Case = tuple[Path, dict[str, Any], str]


def by_harness(case: Case) -> bool:
    """Grade as the harness's own documentation does it."""
    log, row, patch = case
    instance = row["instance_id"]
    prediction = {"instance_id": instance, "model_name_or_path": "x", "model_patch": patch}
    spec = official().make_test_spec(row)
    report = official().get_eval_report(
        test_spec=spec, prediction=prediction, test_log_path=str(log), include_tests_status=True
    )
    return bool(report[instance]["resolved"])


def by_us(case: Case) -> bool:
    """Grade as `pipeline.grade --from-log` does it."""
    log, row, patch = case
    return bool(from_report(grade_log(log, row, patch)).resolved)


def seconds_of(grade: Callable[[Case], bool], cases: list[Case], wanted: list[bool]) -> float:
    started = time.perf_counter()
    found = [grade(case) for case in cases]
    took = time.perf_counter() - started
    assert found == wanted, "the verdicts differ from the stored reports"
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).parents[2] / "shared" / "data"
    parser.add_argument("data", type=Path, nargs="?", default=default)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()

    rows = pq.read_table(options.data / "swebench_verified_v5.parquet").to_pylist()
    row_of = {row["instance_id"]: row for row in rows}
    folders = sorted((options.data / "eval_logs").iterdir())
    cases = [
        (folder / "test_output.txt", row_of[folder.name], (folder / "patch.diff").read_text())
        for folder in folders
    ]
    stored = [
        json.loads((folder / "report.json").read_text())[folder.name]["resolved"]
        for folder in folders
    ]
    started = time.perf_counter()
    official()
    print(f"import, once: {time.perf_counter() - started:.1f} s")

    times: dict[str, list[float]] = {"harness": [], "ours": []}
    for _ in range(options.rounds):
        times["harness"].append(seconds_of(by_harness, cases, stored))
        times["ours"].append(seconds_of(by_us, cases, stored))
    rate = {name: len(cases) / statistics.median(taken) for name, taken in times.items()}
    for name, per_s in rate.items():
        print(f"{name:8} {per_s:6.0f} logs/s (median of {options.rounds} rounds)")
    print(f"ratio    {rate['ours'] / rate['harness']:6.3f} (target: at least 0.9)")


if __name__ == "__main__":
    main()
