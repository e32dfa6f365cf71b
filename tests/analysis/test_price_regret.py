"""Price regret from the tables of finished runs (docs/methods.md, Cheapest schedule)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.analysis.outcomes import groups_of
from pipeline.analysis.price_regret import ArmPriceRegret, price_regrets
from pipeline.analysis.tables import open_tables
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.tables import compact
from pipeline.spec.pricing import PriceList
from pipeline.views.trajectory import Edit, Message, Part
from tests.records.samples import run_record

PRICES = PriceList(name="caching", cached=0.1)


def message(index: int, role: str, n_tokens: int, tool: str | None = None) -> Message:
    content = "x" * (33 * n_tokens)
    return Message(
        index=index, step_index=index // 2, role=role, content=content, n_tokens=n_tokens, tool=tool
    )


def run(arm: str, edits: Mapping[int, tuple[Edit, ...]]) -> RunRecord:
    """A run of four calls, its answers of 5 tokens and its outputs of 100.

    The placeholder, "[Earlier command output omitted.]", has 33 characters: one token here.
    """
    messages = [message(0, "system", 10), message(1, "user", 10)]
    for k in range(3):
        messages += [
            message(2 + 2 * k, "assistant", 5),
            message(3 + 2 * k, "tool", 100, tool="bash"),
        ]
    calls = tuple(
        CallRecord(
            kind="step", step_index=k, message_count=2 + 2 * k, reply="ok", edits=edits.get(k, ())
        )
        for k in range(4)
    )
    return run_record(f"toy-1-sim-{arm}-s0-a{arm}", arm=arm, messages=tuple(messages), calls=calls)


def regrets(tmp_path: Path, *runs: RunRecord, prices: PriceList = PRICES) -> list[ArmPriceRegret]:
    layout = Layout(tmp_path)
    with Journal(layout.journal("w0")) as journal:
        for record in runs:
            journal.append_run(record)
    compact(layout)
    with open_tables(tmp_path) as connection:
        (group,) = groups_of(connection, exclusions=())
        return price_regrets(connection, group, prices)


def removal(index: int, part: Part = Part.CONTENT) -> Edit:
    return Edit(message_index=index, part=part, text="y" * 33, reason="mask")


def test_the_regret_of_a_run_by_hand(tmp_path: Path) -> None:
    """Prompts of 20, 125, 230 and 335 tokens, of which 0, 25, 130 and 235 had been sent.

    The best: the first output goes at call 2 and the second at call 3, as soon as each was shown.
    Removing the first saves 99 reads in calls 2 and 3 and sends 130 - 25 - 99 = 6 tokens again, the
    second saves 99 reads in call 3 and sends 235 - 130 - 99 = 6 tokens again.
    """
    (found,) = regrets(tmp_path, run("full_history", {}))
    unpruned = (20 + 125 + 230 + 335) - 0.9 * (25 + 130 + 235)
    best = 0.1 * 99 * 3 - 0.9 * (6 + 6)
    assert found.regret == pytest.approx(best / unpruned)
    assert found.timing == 0
    assert (found.arm, found.n_runs) == ("full_history", 1)


def test_the_best_schedule_has_no_regret(tmp_path: Path) -> None:
    (found,) = regrets(tmp_path, run("mask", {2: (removal(3),), 3: (removal(5),)}))
    assert found.regret == pytest.approx(0)
    assert found.timing == pytest.approx(0)


def test_a_removal_that_is_never_worth_its_cut_is_regretted_as_timing(tmp_path: Path) -> None:
    """Where reads are nearly free, each cut costs more than it saves."""
    prices = PriceList(name="caching", cached=0.001)
    (found,) = regrets(tmp_path, run("mask", {3: (removal(3),)}), prices=prices)
    unpruned = (20 + 125 + 230 + 335) - 0.999 * (25 + 130 + 235)
    cut = 0.999 * (235 - 25 - 99) - 0.001 * 99
    assert found.timing == pytest.approx(cut / unpruned)
    assert found.regret == pytest.approx(found.timing)


def test_an_arm_that_does_more_than_remove_has_none(tmp_path: Path) -> None:
    dropped = run("drop", {3: (removal(3, Part.DROPPED),)})
    unseen = run("unseen", {1: (removal(3),)})
    for found in regrets(tmp_path, dropped, unseen):
        assert str(found.regret) == str(found.timing) == "nan"


def test_a_run_without_calls_is_left_out(tmp_path: Path) -> None:
    assert regrets(tmp_path, run_record()) == []
