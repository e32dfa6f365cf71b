"""What a cleanup prepays is what the run's caching would lose without its cleanup calls.

See docs/methods.md, Cache accounting.

Analysis has it from the calls table alone; here it is compared with the account of the same runs
made again without those calls.
"""

from dataclasses import replace

import pytest

from pipeline.analysis.cost import usage_of
from pipeline.analysis.outcomes import groups_of
from pipeline.analysis.tables import open_tables
from pipeline.records.journal import frame_at, run_of
from pipeline.records.layout import Layout
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.states import run_states
from pipeline.records.tables import compact
from pipeline.serving.tokens import SimTokens
from pipeline.spec.model import ModelSpec, SimSpec
from pipeline.worker.cache_account import ServerCache, with_cache_account
from tests.worker.conftest import MakeSweep, StartWorker

MODEL = ModelSpec(name="sim", kind="sim", repo="none", sim=SimSpec())


def records(layout: Layout) -> list[RunRecord]:
    return [
        run_of(frame_at(layout.journal(state.journal), state.offset))
        for state in run_states(layout).values()
        if state.journal is not None and state.offset is not None
    ]


def without_cleanups(calls: tuple[CallRecord, ...]) -> list[CallRecord]:
    """Return the other calls; an edit that came into force at a cleanup does so at the next."""
    kept: list[CallRecord] = []
    waiting = ()
    for call in calls:
        if call.kind == "cleanup":
            waiting += tuple(call.edits)
            continue
        kept.append(replace(call, edits=(*waiting, *call.edits)))
        waiting = ()
    return kept


def cached_by_steps(record: RunRecord, calls: list[CallRecord]) -> int:
    charged = with_cache_account(
        calls, record.messages, record.tools, cache=ServerCache.of(MODEL), counter=SimTokens()
    )
    return sum(call.lcp_tokens or 0 for call in charged if call.kind == "step")


def test_what_cleanups_prepay_is_what_the_account_loses_without_them(
    make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    layout = make_sweep(
        "instances.ids=[toy__ledger-1]",
        "~arms.full_history",
        "+arm@arms.sham=sham_cleanup",
        "analysis.reference=sham",
    )
    assert start_worker(layout).wait(120) == 0
    compact(layout)
    lost = {
        record.arm: cached_by_steps(record, list(record.calls))
        - cached_by_steps(record, without_cleanups(record.calls))
        for record in records(layout)
    }
    with open_tables(layout.root) as db:
        (group,) = groups_of(db)
        found = usage_of(db, group)
    assert set(lost) == {"plan_prune", "sham"}
    for arm, tokens in lost.items():
        assert tokens > 0
        # A few tokens short: a completion as the next prompt renders it is a little longer.
        assert float(found[arm]["exact_prepaid"].sum()) == pytest.approx(tokens, rel=0.03)
