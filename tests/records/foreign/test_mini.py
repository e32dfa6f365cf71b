import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given

from pipeline import ingest as ingest_door
from pipeline.records.failure import FailureClass
from pipeline.records.foreign.mini import trajectory_from_mini
from pipeline.records.layout import Layout
from pipeline.records.mini_export import mini_from_record, record_from_export
from pipeline.records.rebuild import messages_of_call
from pipeline.records.run_record import RunRecord
from tests.records.samples import bounded, drawn_runs, full_run

DATA = Path(__file__).parents[4] / "shared" / "data" / "trajectories"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded trajectories at {DATA}")


def words(text: str) -> int:
    return len(text.split())


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "created": 1000 + prompt,
        "model": "m",
        "choices": [{"finish_reason": "stop", "message": {"content": "said"}}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }


def text_mode() -> dict[str, Any]:
    return {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {
            "exit_status": "LimitsExceeded",
            "submission": "",
            "mini_version": "2.4.6",
            "model_stats": {"api_calls": 2},
            "config": {"model": {"model_name": "hosted_vllm/m"}},
        },
        "messages": [
            {"role": "system", "content": "sys"},
            {"role": "user", "content": [{"type": "text", "text": "the task"}]},
            {
                "role": "user",
                "content": "exactly one action please",
                "extra": {
                    "interrupt_type": "FormatError",
                    "model_response": "no action",
                    "response": usage(5, 2),
                },
            },
            {
                "role": "assistant",
                "content": "```mswea_bash_command\nls\n```",
                "extra": {
                    "actions": [{"command": "ls"}],
                    "response": usage(9, 3),
                    "timestamp": 2000.0,
                },
            },
            {
                "role": "user",
                "content": "<output>a b</output>",
                "extra": {"raw_output": "a b", "returncode": 0, "timestamp": 2001.5},
            },
            {"role": "exit", "content": "LimitsExceeded", "extra": {}},
        ],
    }


def test_text_actions_and_their_outputs_are_observations() -> None:
    run = trajectory_from_mini(text_mode(), words)
    (turn,) = run.trajectory.turns
    (output,) = turn.observations
    assert (output.command, output.returncode, output.role) == ("ls", 0, "user")
    assert (output.output, output.frame) == ("a b", ("<output>", "</output>"))
    assert run.trajectory.messages[1].content == "the task"
    assert run.failure_class is FailureClass.LIMIT_STEPS
    assert (run.model, run.agent_version) == ("hosted_vllm/m", "2.4.6")
    assert (run.started_at, run.finished_at) == (1005.0, 2001.5)


def test_a_reply_that_mini_could_not_parse_is_billed() -> None:
    run = trajectory_from_mini(text_mode(), words)
    assert [(c.prompt_tokens, c.error) for c in run.calls] == [(5, "format error"), (9, None)]
    assert run.calls[0].reply == "no action"
    assert [m.step_index for m in run.trajectory.messages] == [0, 0, 1, 2, 2]


def test_a_call_without_usage_is_left_out_of_the_sums_and_counted(tmp_path: Path) -> None:
    data = text_mode()
    del data["messages"][3]["extra"]["response"]
    (tmp_path / "x.traj.json").write_text(json.dumps(data))
    argv = [str(tmp_path), "--out", str(tmp_path / "out"), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 0
    (row,) = pq.read_table(tmp_path / "out/tables/runs").to_pylist()
    calls = pq.read_table(tmp_path / "out/tables/calls").to_pylist()
    known = [call["prompt_tokens"] for call in calls if call["prompt_tokens"] is not None]
    assert len(known) == 1
    assert (row["n_steps"], row["n_calls"], row["n_counted_calls"]) == (2, 2, 1)
    assert (row["input_tokens"], row["peak_context_tokens"]) == (known[0], known[0])
    assert row["instance_id"].startswith("the_task-")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trajectory_format": "mini-swe-agent-7"}, "mini-swe-agent-1.1 and mini-swe-agent-1 are"),
        ({"messages": []}, "no messages"),
        ({"messages": ["text"]}, "no object"),
        ({"messages": [{"output": []}]}, "no item of the Responses API"),
    ],
)
def test_what_is_no_trajectory_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trajectory_from_mini({**text_mode(), **change}, words)


def test_a_bad_file_is_named_and_the_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.traj.json").write_text(json.dumps(text_mode()))
    (tmp_path / "torn.traj.json").write_text(json.dumps(text_mode())[:100])
    (tmp_path / "list.traj.json").write_text("[]")
    argv = [str(tmp_path), "--out", str(tmp_path / "out"), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 1
    shown = capsys.readouterr()
    assert "torn.traj.json was left out" in shown.err
    assert "list.traj.json was left out" in shown.err
    assert "ingested 1 run;" in shown.out


def test_recordings_of_one_instance_are_replicates(tmp_path: Path) -> None:
    for number in range(2):
        data = text_mode()
        data["messages"][0]["content"] = f"sys {number}"
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "x.traj.json").write_text(json.dumps(data))
    out = tmp_path / "out"
    for number in (0, 1, 1):
        folder = str(tmp_path / str(number))
        ingest_door.main([folder, "--out", str(out), "--token-counter", "chars/3.6"])
    rows = pq.read_table(out / "tables/runs").to_pylist()
    assert sorted(r["seed"] for r in rows) == [0, 1]
    assert len({r["block_id"] for r in rows}) == 2


@bounded
@given(run=drawn_runs())
def test_an_exported_run_comes_back_whole(run: RunRecord) -> None:
    data = json.loads(json.dumps(mini_from_record(run)))
    assert record_from_export(data) == run


def test_an_export_reads_like_any_recording_without_our_part() -> None:
    run = full_run()
    data = json.loads(json.dumps(mini_from_record(run)))
    del data["info"]["planprune"]
    assert record_from_export(data) is None
    read = trajectory_from_mini(data, words)
    assert [m.content for m in read.trajectory.messages] == [m.content for m in run.messages]
    assert read.trajectory.messages[3].command == "cat a.py"
    assert [c.prompt_tokens for c in read.calls] == [100, 150]
    assert read.submission == run.patch


def test_an_export_says_what_the_arm_took_away() -> None:
    message = mini_from_record(full_run())["messages"][3]
    assert message["extra"]["planprune"]["edits"] == [[3, "content", "[omitted]", "prune"]]


def test_an_export_opens_in_minis_inspector(tmp_path: Path) -> None:
    from minisweagent.run.utilities.inspector import TrajectoryInspector

    path = tmp_path / "run.traj.json"
    path.write_text(json.dumps(mini_from_record(full_run())))

    async def read_all_steps() -> list[str]:
        app = TrajectoryInspector([path])
        shown = []
        async with app.run_test(size=(120, 60)) as pilot:
            for _ in range(app.n_steps):
                await pilot.pause()
                texts = app.query(".message-content")
                shown += [str(text.render()) for text in texts]
                await pilot.press("right")
        return shown

    shown = "\n".join(asyncio.run(read_all_steps()))
    for expected in ("Fix the ledger.", "cat a.py", "step 1 is completed", "done", "diff --git"):
        assert expected in shown


@needs_data
def test_real_recordings_keep_the_token_sums_of_their_files(tmp_path: Path) -> None:
    out = tmp_path / "real"
    assert ingest_door.main([str(DATA), "--out", str(out)]) == 0
    rows = {r["instance_id"]: r for r in pq.read_table(out / "tables/runs").to_pylist()}
    calls = pq.read_table(out / "tables/calls").to_pylist()
    files = list(DATA.glob("*.traj.json"))
    assert len(rows) == len(files) == 6
    for path in files:
        data = json.loads(path.read_text())
        row = rows[data["instance_id"]]
        sums = usage_sums(data)
        assert row["input_tokens"] == sums["prompt"]
        assert row["output_tokens"] == sums["completion"]
        assert row["cached_tokens"] == sums["cached"]
        assert row["n_steps"] == sums["calls"]
        assert row["patch"] == data["info"]["submission"]
        mine = [c for c in calls if c["run_id"] == row["run_id"]]
        assert sum(c["prompt_tokens"] for c in mine) == sums["prompt"]


def usage_sums(data: dict[str, Any]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for message in data["messages"]:
        response = message.get("extra", {}).get("response")
        if response:
            used = response["usage"]
            sums["prompt"] += used["prompt_tokens"]
            sums["completion"] += used["completion_tokens"]
            sums["cached"] += used["prompt_tokens_details"]["cached_tokens"]
            sums["calls"] += 1
    return sums


@needs_data
def test_real_recordings_are_rebuilt_as_they_were_sent(tmp_path: Path) -> None:
    (path,) = DATA.glob("*sqlfluff-1625*")
    layout = Layout(tmp_path / "real")
    ingest_door.main([str(path), "--out", str(layout.root), "--token-counter", "chars/3.6"])
    (row,) = pq.read_table(layout.table("runs")).to_pylist()
    recorded = [m for m in json.loads(path.read_text())["messages"] if m["role"] != "exit"]
    positions = [i for i, m in enumerate(recorded) if m["role"] == "assistant"]
    for call_index in (0, 20, len(positions) - 1):
        sent = messages_of_call(row["run_id"], call_index, layout)
        before = recorded[: positions[call_index]]
        assert [m["content"] for m in sent] == [m["content"] or "" for m in before]
        assert [m.get("reasoning") for m in sent] == [m.get("reasoning_content") for m in before]
        assert [[c["function"] for c in m.get("tool_calls", ())] for m in sent] == [
            [c["function"] for c in m.get("tool_calls") or ()] for m in before
        ]


def test_reading_an_export_again_changes_nothing(tmp_path: Path) -> None:
    run = replace(full_run(), evidence="sim")
    (tmp_path / "run.traj.json").write_text(json.dumps(mini_from_record(run)))
    out = tmp_path / "out"
    for _ in range(2):
        assert ingest_door.main([str(tmp_path / "run.traj.json"), "--out", str(out)]) == 0
    (row,) = pq.read_table(out / "tables/runs").to_pylist()
    assert (row["run_id"], row["evidence"], row["arm"]) == (run.run_id, "sim", "plan_prune")


@pytest.mark.parametrize("odd", [{"role": 7}, {"role": ["x"]}])
def test_a_file_with_odd_fields_is_left_out_and_spoils_nothing(tmp_path: Path, odd: Any) -> None:
    good, bad = tmp_path / "good.traj.json", tmp_path / "bad.traj.json"
    good.write_text(json.dumps(mini_from_record(full_run())))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, odd]
    data = {"trajectory_format": "mini-swe-agent-1.1", "messages": messages, "info": {}}
    bad.write_text(json.dumps(data))
    out = tmp_path / "out"
    assert ingest_door.main([str(bad), str(good), "--out", str(out)]) == 1
    assert pq.read_table(out / "tables/runs").num_rows == 1
