"""Arms with tools of their own, as whole sweeps: the tools are offered, used, answered, counted."""

import json

from pipeline.analysis.behaviour.collect import collect
from pipeline.analysis.tables import open_tables
from pipeline.analysis.treatment import treatments_of
from pipeline.records.rebuild import all_run_tables
from pipeline.records.tables import compact
from tests.worker.conftest import MakeSweep, StartWorker

ARMS = (
    "instances.ids=[toy__ledger-1]",
    "~arms.full_history",
    "~arms.plan_prune",
    "+arm@arms.recalling=plan_prune_recall",
    # Everything is pruned, so that what is needed is missed.
    "arms.recalling.policy.choose=random",
    "+arms.recalling.policy.random_rate=1.0",
    "+arm@arms.anytime=discard_anytime",
    "+arm@arms.compressing=dcp_compress",
    "arms.compressing.policy.nudge_from_tokens=2000",
    "analysis.reference=anytime",
)


TOOLS = ("recall", "prune_observations", "compress")


def test_pruned_outputs_are_recalled_and_reminders_are_heeded(
    make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    layout = make_sweep(*ARMS)
    assert start_worker(layout).wait(120) == 0
    compact(layout)
    used = {
        t.run["arm"]: [m for m in t.messages if m["tool"] in TOOLS] for t in all_run_tables(layout)
    }
    assert {m["tool"] for m in used["recalling"]} == {"recall"}
    assert all(m["content"].startswith("<returncode>") for m in used["recalling"])
    assert {m["tool"] for m in used["anytime"]} == {"prune_observations"}
    assert {m["tool"] for m in used["compressing"]} == {"compress"}
    asked = {i for m in used["anytime"] for i in json.loads(m["command"])["ids"]}
    with open_tables(layout.root) as db:
        files = sorted(layout.table("messages").glob("*.parquet"))
        behaviour = collect(db, files)
        treatments = {t.arm: t for t in treatments_of(db)}
    recalls = behaviour.columns["n_recalls"].tolist()
    assert sorted(recalls) == [0.0, 0.0, float(len(used["recalling"]))]
    assert treatments["anytime"].verdicts["treated"] == 1
    assert 0 < treatments["anytime"].edits["prune"] <= len(asked)
    assert treatments["recalling"].verdicts["treated"] == 1
    assert treatments["compressing"].verdicts["treated"] == 1
    assert treatments["compressing"].edits["compress"] > 10
