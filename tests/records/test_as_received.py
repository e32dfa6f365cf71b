"""From the server's bytes to the tables and back: what arrived is what the tables rebuild."""

from dataclasses import fields
from pathlib import Path

import pytest

from pipeline.agent.rollout import RunOutcome
from pipeline.arms.llm_summary import LlmSummary
from pipeline.arms.plan_prune import PlanPrune
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.mini_export import mini_from_record, record_from_export
from pipeline.records.rebuild import (
    all_run_tables,
    messages_of_call,
    record_from,
    run_tables,
    tool_lists,
)
from pipeline.records.run_record import RunRecord
from pipeline.records.tables import compact
from pipeline.spec.arm import ArmSpec
from tests.agent.rollouts import PRUNE, SHAM, rollout
from tests.fakes import Message, Reply, bash, call, planctl, says, submits
from tests.records.samples import run_record

LONG = "a line of output that is long enough to be worth removing\n" * 400
"""Long enough to be elided in every arm."""

AS_USER = ArmSpec(name="cleanup_as_user", policy=PlanPrune(prompt_as="user_message"))
SUMMARY = ArmSpec(name="llm_summary", policy=LlmSummary(summarise_turns=2, keep_last_turns=1))


class WorkingModel:
    """A model that prunes when asked to, summarises when asked to, and else works on its plan."""

    def __init__(self) -> None:
        self.work = iter(
            [
                says("", planctl("set", steps=["a", "b"]), planctl("start", step=1)),
                says("", bash("cat one"), reasoning="First."),
                says("", bash("cat two")),
                says("no call at all"),
                says("", planctl("complete", outcome="read"), bash("cat three")),
                says("", planctl("start", step=2), bash("ls")),
                says("", planctl("complete", outcome="done")),
                submits(),
            ]
        )

    def __call__(self, request: Message) -> Reply:
        if isinstance(request.get("tool_choice"), dict):
            return says("", call("prune_observations", ids=[1, 2]), reasoning="These are done.")
        if not request.get("tools"):
            return says("A summary: ünïcödé \u2028 and all.")
        return next(self.work)


@pytest.mark.parametrize("arm", [PRUNE, SHAM, AS_USER, SUMMARY], ids=lambda arm: arm.name)
def test_the_tables_rebuild_what_the_server_received(arm: ArmSpec, tmp_path: Path) -> None:
    outputs = {"cat one": LONG, "cat two": LONG, "cat three": "short\n"}
    outcome, requests = rollout(WorkingModel(), arm=arm, results=outputs)
    record = recorded(outcome)
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(record)
    compact(layout)
    kinds = [row["kind"] for row in run_tables(record.run_id, layout).calls]
    assert len(set(kinds)) > 1
    for index, request in enumerate(requests):
        assert messages_of_call(record.run_id, index, layout) == request["messages"]
    assert len(requests) == len(kinds)


@pytest.mark.parametrize("arm", [PRUNE, SUMMARY], ids=lambda arm: arm.name)
def test_a_real_rollout_comes_back_whole_from_tables_and_export(
    arm: ArmSpec, tmp_path: Path
) -> None:
    outcome, _ = rollout(WorkingModel(), arm=arm, results={"cat one": LONG, "cat two": LONG})
    record = recorded(outcome)
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(record)
    compact(layout)
    (tables,) = all_run_tables(layout)
    assert record_from(tables, tool_lists(layout)) == record
    assert record_from_export(mini_from_record(record)) == record


def recorded(outcome: RunOutcome) -> RunRecord:
    return run_record(**{f.name: getattr(outcome, f.name) for f in fields(RunOutcome)})
