"""Peak memory of compacting and analysing one journal with gigabytes of outputs.

    python benchmarks/big_folder.py FOLDER [GIGABYTES]

Makes a journal of two arms whose runs print lines that hardly repeat, then compacts and analyses it
in processes of their own, and prints the peak of each.
"""

import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.records import frames
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.run_record import RunRecord
from tests.records.samples import full_run, grade_record

OUTPUT_BYTES = 400_000
OUTPUTS_PER_RUN = 50
LINE_CHARS = 66


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    gigabytes = float(arguments[1]) if len(arguments) > 1 else 2.3
    layout = Layout(folder)
    if not layout.journal_paths():
        _write(layout, gigabytes)
    size = sum(path.stat().st_size for path in layout.journal_paths())
    print(f"{gigabytes} GB of outputs, {size / 1e9:.2f} GB of journal")
    for name, words in (
        ("compact", ["pipeline.compact", str(folder)]),
        ("analyze", ["pipeline.analyze", str(folder), "--allow-invalid"]),
    ):
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-m", *words], check=False)
        # The largest child so far: compaction comes first.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        took = time.monotonic() - started
        print(f"{name}: status {done.returncode}, peak so far {peak:.2f} GB, {took:.0f} s")
    return 0


def _write(layout: Layout, gigabytes: float) -> None:
    rng = random.Random(0)
    frames.ZSTD_LEVEL = 1
    n_runs = round(gigabytes * 1e9 / OUTPUT_BYTES / OUTPUTS_PER_RUN)
    with Journal(layout.journal("w0")) as journal:
        for number in range(n_runs):
            run = _run(number, rng)
            journal.append_run(run)
            journal.append_grade(grade_record(run))


def _run(number: int, rng: random.Random) -> RunRecord:
    arm = ("full_history", "plan_prune")[number % 2]
    small = full_run(f"big-{number}", instance_id=f"big__case-{number // 2}", arm=arm)
    observation = next(m for m in small.messages if m.tool == "bash")
    messages = list(small.messages)
    for _ in range(OUTPUTS_PER_RUN):
        noise = rng.randbytes(OUTPUT_BYTES // 2).hex()
        text = "\n".join(noise[at : at + LINE_CHARS] for at in range(0, len(noise), LINE_CHARS))
        changes = {"content": text, "n_tokens": len(text) // 4, "command": f"cat f{len(messages)}"}
        messages.append(replace(observation, index=len(messages), output=None, output_start=None,
                                **changes))  # fmt: skip
    return replace(small, messages=tuple(messages))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
