"""What is read from the tables: choices of runs that pruned nothing, and parts of any size."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.behaviour.collect import Behaviour, chosen_numbers, collect
from pipeline.analysis.behaviour.recalls import recalled_number
from pipeline.analysis.behaviour.regret import Hazard
from pipeline.analysis.study import study_of
from pipeline.analysis.tables import open_tables
from pipeline.records.layout import Layout


def call(arguments: str, name: str = "prune_observations") -> str:
    return json.dumps(
        [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    )


@pytest.mark.parametrize(
    ("reply", "numbers"),
    [
        (("", call('{"ids": [1, 5]}')), (1, 5)),
        (("", call('{"ids": [1, "x", 5]}')), (1, 5)),
        (("", call('{"ids": []}')), ()),
        (("", call('{"ids": [1')), ()),
        (("", call('{"note": "x"}')), ()),
        (("", call('{"ids": [2]}', name="bash")), ()),
        (("prune_observations 3 5", None), (3, 5)),
        ((None, None), ()),
    ],
)
def test_a_cleanups_choice_is_read_as_the_policy_reads_it(
    reply: tuple[str | None, str | None], numbers: tuple[int, ...]
):
    assert chosen_numbers(*reply) == numbers


def behaviour_of(results: Path) -> Behaviour:
    files = sorted(Layout(results).table("messages").glob("*.parquet"))
    with open_tables(results) as connection:
        return collect(connection, files)


def hazard_of_arm(results: Path, arm: str) -> Hazard:
    behaviour = behaviour_of(results)
    mine = [0 if f"-{arm}-" in run_id else -1 for run_id in behaviour.run_ids]
    return behaviour.hazard.by_group(np.array(mine), 1)


def test_outputs_that_a_sham_cleanup_chose_count_as_pruned_for_regret(sweep: Path):
    assert np.isnan(hazard_of_arm(sweep, "sham_cleanup").pruned_rate)
    for path in Layout(sweep).table("calls").glob("*.parquet"):
        table = pq.read_table(path)
        replies = [
            call('{"ids": [1, 2, 3, 4]}') if kind == "cleanup" else None
            for kind in table["kind"].to_pylist()
        ]
        place = table.schema.get_field_index("reply_tool_calls")
        pq.write_table(table.set_column(place, "reply_tool_calls", pa.array(replies)), path)
    assert hazard_of_arm(sweep, "sham_cleanup").pruned_at_risk.sum() > 0
    assert np.isnan(hazard_of_arm(sweep, "full_history").pruned_rate)


@pytest.mark.parametrize(
    "bounds",
    [{"MAX_BATCH_MESSAGES": 500}, {"MAX_BATCH_BYTES": 20_000, "_PIECE_BYTES": 3000}],
    ids=["messages", "bytes"],
)
def test_reading_in_small_parts_finds_the_same(
    pristine: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
):
    whole = behaviour_of(pristine)
    for name, bound in bounds.items():
        monkeypatch.setattr(f"pipeline.analysis.behaviour.collect.{name}", bound)
    parts = behaviour_of(pristine)
    assert len(set(parts.run_ids)) == len(parts.run_ids)
    assert sorted(parts.run_ids) == sorted(whole.run_ids)
    assert parts.refetches.num_rows == whole.refetches.num_rows
    order = [parts.run_ids.index(run_id) for run_id in whole.run_ids]
    for name in ("kept_at_risk", "pruned_events"):
        assert getattr(parts.hazard, name)[order] == pytest.approx(getattr(whole.hazard, name))
    for name, values in whole.columns.items():
        assert parts.columns[name][order].tolist() == values.tolist()


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ('{"id": 3}', 3),
        ('{"id": "3"}', 3),
        ("recall 3", 3),
        ("recall(3)", 3),
        ("recall", None),
        ('{"id": []}', None),
        ("[1]", None),
    ],
)
def test_a_recall_names_an_output_or_none(command: str, number: int | None):
    assert recalled_number(command) == number


def test_only_recalls_of_outputs_that_were_gone_are_counted(sweep: Path):
    run_id = ""
    for path in Layout(sweep).table("messages").glob("*.parquet"):
        table = pq.read_table(path)
        rows = table.to_pylist()
        pruned = next((r for r in rows if r["pruned_at_call"] is not None), None)
        if pruned is None:
            continue
        run_id = pruned["run_id"]
        mine = [r for r in rows if r["run_id"] == run_id]
        outputs = [r for r in mine if r["tool"] and r["tool"] != "planctl"]
        number = 1 + outputs.index(pruned)
        shown = 1 + next(i for i, r in enumerate(outputs) if r["pruned_at_call"] is None)
        last = mine[-1]
        rows += [
            {**last, "message_index": last["message_index"] + k, "tool": "recall", "command": text}
            for k, text in enumerate(
                (f'{{"id": {number}}}', f"recall {shown}", '{"id": 999}', "recall"), start=1
            )
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
        break
    behaviour = behaviour_of(sweep)
    counts = dict(zip(behaviour.run_ids, behaviour.columns["n_recalls"].tolist(), strict=True))
    assert counts.pop(run_id) == 1.0
    assert set(counts.values()) == {0.0}


def test_a_run_that_names_a_foreign_commit_leaks_like_one_that_looks_at_other_branches(sweep: Path):
    def named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = next(r for r in rows if r["tool"] == "bash" or r["command"])
        first["command"], first["content"] = "git show 5f3c2a1", "commit 5f3c2a1"
        leaking.append(first["run_id"])
        return rows

    leaking: list[str] = []
    path = next(iter(sorted(Layout(sweep).table("messages").glob("*.parquet"))))
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(named(table.to_pylist()), schema=table.schema), path)
    with open_tables(sweep) as connection:
        study = study_of(sweep, connection)
    [group] = study.groups
    assert sum(b.foreign_commits for b in group.behaviour) == 1
    assert len(group.leaking) == 1
    assert group.leaking[0] in leaking[0]
