"""What became of the prompts of arms that spliced, from the tables of finished runs."""

from pathlib import Path
from typing import Any

from pipeline.analysis.outcomes import groups_of
from pipeline.analysis.splice_use import ArmSpliceUse, splice_uses
from pipeline.analysis.tables import open_tables
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.tables import compact
from tests.records.samples import run_record


def call(step: int, **counts: Any) -> CallRecord:
    return CallRecord(kind="step", step_index=step, message_count=2, reply="ok", **counts)


def run(arm: str, *calls: CallRecord) -> RunRecord:
    return run_record(f"toy-1-sim-{arm}-s0-a{arm}", arm=arm, messages=(), calls=calls)


def test_only_calls_whose_server_told_are_summed(tmp_path: Path) -> None:
    told = {"reused_tokens": 40, "rotated_tokens": 50, "recomputed_tokens": 10}
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(
            run(
                "spliced",
                call(0, prompt_tokens=100, rebilled_tokens=45, **told),
                call(1, prompt_tokens=100, rebilled_tokens=45, **told),
                call(2, prompt_tokens=70),
            )
        )
        journal.append_run(run("plain", call(0, prompt_tokens=100, rebilled_tokens=45)))
    compact(layout)
    with open_tables(tmp_path) as connection:
        (group,) = groups_of(connection, exclusions=())
        assert splice_uses(connection, group) == [
            ArmSpliceUse(
                arm="spliced",
                prompt_tokens=200,
                reused_tokens=80,
                rotated_tokens=100,
                recomputed_tokens=20,
                rebilled_tokens=90,
                n_calls=2,
            )
        ]
