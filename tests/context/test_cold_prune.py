"""`cold_prune`: pruning at the moments when the cache has lost the prefix anyway."""

from dataclasses import replace

import pytest

from pipeline.spec.parse import SpecError
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands, shown
from tests.context.scripts import Act, Ran, rounds, set_plan

LONG = "x" * 50
"""Characters of one word, so that an output of 100 words holds 5,099 characters."""


def long(path: str, waited_s: float = 1.0) -> Act:
    return Act(command=f"cat {path}", output=" ".join([LONG] * 100), waited_s=waited_s)


def run_of(*acts: Act, context_length: int = 1000, **parameters: object) -> Ran:
    return ran(arm("cold_prune", **parameters), rounds(*acts), context_length=context_length)


FIVE = [long(f"{k}.py") for k in range(5)]
PAUSE = replace(long("pause.py"), waited_s=301.0)


def test_nothing_is_touched_while_the_cache_is_warm() -> None:
    assert run_of(*FIVE, *FIVE).standing == {}
    assert run_of(*FIVE, replace(PAUSE, waited_s=300.0)).standing == {}


def test_a_time_that_nobody_measured_is_no_cold_cache() -> None:
    assert run_of(*FIVE, replace(PAUSE, waited_s=None)).standing == {}


def test_after_the_time_to_live_long_outputs_keep_head_and_tail() -> None:
    run = run_of(*FIVE, PAUSE)
    assert removed_commands(run, "trim") == ["cat 0.py", "cat 1.py", "cat 2.py"]
    text = shown(run)[3]
    assert text.startswith(LONG)
    assert text.endswith(LONG)
    assert "[2099 characters left out]" in text
    assert len(text) == 3000 + len("\n[2099 characters left out]\n")


def test_a_view_below_the_first_share_of_the_window_is_left_alone() -> None:
    assert run_of(*FIVE, PAUSE, context_length=3000).standing == {}


def test_where_trimming_is_not_enough_the_oldest_are_cleared_until_it_is() -> None:
    run = run_of(*FIVE, PAUSE, min_clear_chars=0, clear_from_share=0.5)
    assert removed_commands(run, "clear") == ["cat 0.py"]
    assert removed_commands(run, "trim") == ["cat 1.py", "cat 2.py"]


def test_little_old_text_is_not_cleared() -> None:
    run = run_of(*FIVE, PAUSE, min_clear_chars=50_000, clear_from_share=0.1)
    assert removed_commands(run, "clear") == []


def test_what_was_trimmed_once_can_be_cleared_at_a_later_cold_moment() -> None:
    run = run_of(*FIVE, PAUSE, *FIVE, PAUSE, min_clear_chars=10_000, clear_from_share=0.6)
    assert removed_commands(run, "clear")[:1] == ["cat 0.py"]
    first = next(m for m in run.moments if m.new)
    assert {edit.reason for edit in first.new} == {"trim"}


def test_the_newest_turns_and_the_plan_stay_whole() -> None:
    run = run_of(
        set_plan(2), *FIVE, PAUSE, keep_last_turns=4, min_clear_chars=0, clear_from_share=0
    )
    assert removed_commands(run, "clear") == ["cat 0.py", "cat 1.py"]


def test_a_head_and_tail_that_hold_the_whole_output_are_refused() -> None:
    with pytest.raises(SpecError, match="must be below"):
        arm("cold_prune", head_chars=3000)
