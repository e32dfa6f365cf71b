"""How fast session logs are priced: 300 MB of Claude Code's JSONL on two cores.

Target: under 60 s, and under 1 GB a process.

    python benchmarks/session_logs.py [--mb 300] [--calls 200] [--processes 2] [--arms ARM...]

Logs are made up: plain sessions of so many calls, a command's output of 1 to 8 kB each, which
stands in its line twice as the tool writes it, and a gap of ten minutes now and then.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = ["self", "return", "value", "index", "test_", "None", "path", "error:", "def", "==", "  "]


def lines_of(session: str, n_calls: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    now, parent, prefix = START, None, 14_000

    def line(kind: str, uuid: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "cwd": "/home/someone/project",
            "sessionId": session,
            "version": "2.1.0",
            "type": kind,
            "message": message,
            "uuid": uuid,
            "timestamp": now.isoformat(),
            **more,
        }

    yield line("user", f"{session}-u", {"role": "user", "content": "Mend the scale."})
    parent, written = f"{session}-u", prefix
    read = 0
    for number in range(n_calls):
        now += timedelta(seconds=600 if rng.random() < 0.02 else 20)
        usage = {
            "input_tokens": 3,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": 60,
        }
        tool = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
        content = [{**tool, "input": {"command": f"cat src/module_{number % 40}.py"}}]
        body = {"id": f"msg_{session}{number}", "role": "assistant", "model": "claude-sonnet-5-5"}
        reply = {**body, "content": content, "usage": usage}
        yield line("assistant", f"{session}-a{number}", reply, requestId=f"req_{session}{number}")
        parent = f"{session}-a{number}"
        now += timedelta(seconds=2)
        output = " ".join(rng.choices(WORDS, k=rng.randrange(200, 1_600)))
        results = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": output}]
        kept = {"stdout": output, "stderr": ""}
        told = {"role": "user", "content": results}
        yield line("user", f"{session}-r{number}", told, toolUseResult=kept)
        parent = f"{session}-r{number}"
        read, written = read + written, 60 + len(output) // 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--arms", nargs="+", default=["token_window", "cold_prune"])
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        size, number = 0, 0
        while size < options.mb * 1_000_000:
            path = Path(folder) / "logs" / f"{number:04}.jsonl"
            path.parent.mkdir(exist_ok=True)
            with path.open("w") as file:
                for one in lines_of(f"s{number:04}", options.calls, rng):
                    file.write(json.dumps(one) + "\n")
            size += path.stat().st_size
            number += 1
        command = [sys.executable, "-m", "pipeline.replay", str(path.parent)]
        command += ["--pricing", "anthropic", "--arms", *options.arms]
        command += ["--processes", str(options.processes)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        for what in ("first", "again"):
            start = time.perf_counter()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment
            )
            wall_s = time.perf_counter() - start
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{what}: {number} sessions, {size / 1e6:.0f} MB: {wall_s:.1f} s, {cpu_s:.1f} s of"
                f" processor time, {used.ru_maxrss / 1e3:.0f} MB in the largest process so far"
            )
        print(done.stdout.splitlines()[0])


if __name__ == "__main__":
    main()
