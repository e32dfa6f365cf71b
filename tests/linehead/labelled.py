"""Recorded runs on disk with their labels: where `features` begins."""

import json
from pathlib import Path

from pipeline.linehead.__main__ import main
from tests.linehead.runs import many_lines


def labelled_runs(folder: Path, *, n_runs: int = 3) -> tuple[Path, Path]:
    """Write runs with three outputs each; return their folder and the labels file."""
    runs, labels = folder / "runs", folder / "labels.parquet"
    runs.mkdir()
    for r in range(n_runs):
        outputs = [many_lines(16 + i, f"run {r} output {i} é☃") for i in range(3)]
        # The agent reads some lines again, so that rules find something to keep.
        outputs.append("".join(outputs[0].splitlines(keepends=True)[3:6]))
        write_run(runs, f"a__b-{r}", outputs)
    assert main(["label", f"trajectories=[{runs}]", f"out={labels}"]) == 0
    return runs, labels


def write_run(folder: Path, name: str, outputs: list[str]) -> None:
    """Write a mini-SWE-agent trajectory whose commands have these outputs."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    for n, output in enumerate(outputs):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": f"cat {n}"})},
        }
        actions = [{"command": f"cat {n}", "tool_call_id": f"c{n}"}]
        messages += [
            {"role": "assistant", "content": f"look {n}", "tool_calls": [call],
             "extra": {"actions": actions}},
            {"role": "tool", "tool_call_id": f"c{n}", "content": output, "extra": {}},
        ]  # fmt: skip
    data = {"trajectory_format": "mini-swe-agent-1.1", "messages": messages, "instance_id": name}
    (folder / f"{name}.traj.json").write_text(json.dumps(data))
