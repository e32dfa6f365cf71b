"""docs/methods.md, When a cut pays: gain, queue, and the calls still to come."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.accounting.break_even import Prices, QueuedEdit, asking_cost, best_cut
from pipeline.accounting.survival import mean_calls_to_come, survival_curve
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands
from tests.context.scripts import Act, Round, planctl, prunes, read, rounds, set_plan

PRICES = Prices(input=1.0, cached=0.1, output=5.0)


def queued(number: int, position: int, saved: int) -> QueuedEdit:
    return QueuedEdit(number=number, position=position, saved_tokens=saved)


# --- gain ----------------------------------------------------------------------------------------
def gain(calls: float, saved: int, stays: int) -> float:
    cut = best_cut(
        [queued(1, 0, saved)],
        sent_tokens=saved + stays,
        calls_to_come=calls,
        prices=PRICES,
        block_tokens=1,
    )
    assert cut is not None
    return cut.gain


def test_the_worked_example_breaks_even_at_37_calls() -> None:
    assert gain(36, 4900, 20_000) < 0 < gain(37, 4900, 20_000)


def test_with_the_question_it_takes_60_calls() -> None:
    cost = asking_cost(PRICES, context_tokens=25_000, listing_tokens=1500, answer_tokens=1500)
    assert gain(60, 4900, 20_000) == pytest.approx(cost, rel=0.01)


def test_a_cut_re_bills_from_the_block_before_it_and_not_what_was_never_sent() -> None:
    cut = best_cut(
        [queued(1, 1003, 100)],
        sent_tokens=1500,
        calls_to_come=0,
        prices=PRICES,
        block_tokens=16,
    )
    assert cut is not None
    assert cut.gain == pytest.approx(-0.9 * (1500 - 992 - 100))


def test_writing_to_the_cache_makes_a_cut_dearer_and_a_cold_prefix_makes_it_free() -> None:
    dear, cold = (
        best_cut(
            [queued(1, 0, 4900)],
            sent_tokens=24_900,
            calls_to_come=37,
            prices=replace(PRICES, write=1.25),
            block_tokens=1,
            cold=is_cold,
        )
        for is_cold in (False, True)
    )
    assert dear is not None
    assert cold is not None
    assert dear.gain == pytest.approx(37 * 0.1 * 4900 - (1.25 - 0.1) * 20_000)
    assert cold.gain == pytest.approx(37 * 0.1 * 4900)


edits = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), max_size=6)


@given(edits, st.floats(0, 80), st.integers(1, 64))
def test_the_best_cut_is_the_best_of_all_positions(
    drawn: list[tuple[int, int]], calls: float, block: int
) -> None:
    positions = list(itertools.accumulate((p + s for p, s in drawn), initial=0))
    waiting = [queued(k, positions[k], s) for k, (_, s) in enumerate(drawn)]
    sent = positions[-1] + 50
    cut = best_cut(
        waiting, sent_tokens=sent, calls_to_come=calls, prices=PRICES, block_tokens=block
    )
    gains = []
    for start in waiting:
        saved = sum(q.saved_tokens for q in waiting if q.position >= start.position)
        again = sent - start.position // block * block - saved
        gains.append(calls * 0.1 * saved - 0.9 * max(0, again))
    assert (cut is None) == (not waiting)
    assert cut is None or cut.gain == pytest.approx(max(gains))


# --- calls to come -------------------------------------------------------------------------------
def test_without_caps_the_mean_is_that_of_the_longer_pilot_runs() -> None:
    calls, capped = [10, 20, 30, 60], [False] * 4
    assert mean_calls_to_come(calls, capped, so_far=0) == pytest.approx(30.0)
    assert mean_calls_to_come(calls, capped, so_far=15) == pytest.approx((5 + 15 + 45) / 3)
    assert mean_calls_to_come(calls, capped, so_far=20) == pytest.approx((10 + 40) / 2)
    assert mean_calls_to_come(calls, capped, so_far=60) == 0.0


@given(st.lists(st.integers(1, 90), min_size=1), st.integers(0, 100))
def test_kaplan_meier_without_caps_is_the_plain_mean_of_what_is_left(
    calls: list[int], so_far: int
) -> None:
    left = [c - so_far for c in calls if c > so_far]
    expected = sum(left) / len(left) if left else 0.0
    got = mean_calls_to_come(calls, [False] * len(calls), so_far=so_far)
    assert got == pytest.approx(expected)


def test_capped_runs_are_censored_and_not_finished() -> None:
    # By hand: at 10 one of four ends (3/4 go on); the run capped at 20 leaves unseen; at 30 one of
    # the two still watched ends (3/8 go on).
    calls, capped = [10, 20, 30, 40], [False, True, False, True]
    assert survival_curve(calls, capped) == [(10, 0.75), (30, 0.375)]
    assert mean_calls_to_come(calls, capped, so_far=0) == pytest.approx(10 + 20 * 0.75 + 10 * 0.375)
    assert mean_calls_to_come(calls, capped, so_far=0) > sum(calls) / 4


def test_the_horizon_is_the_next_rewrite_that_cannot_be_avoided() -> None:
    assert mean_calls_to_come([100] * 3, [False] * 3, so_far=10, horizon=7) == pytest.approx(7.0)


def test_a_pilot_of_capped_runs_alone_gives_what_was_seen() -> None:
    assert mean_calls_to_come([50, 50], [True, True], so_far=20) == pytest.approx(30.0)
    assert mean_calls_to_come([], [], so_far=20) == 0.0


# --- the policy ----------------------------------------------------------------------------------
CHEAP = {"cached_price": 0.9, "output_price": 0.1, "first_output_tokens": 1.0}
DEAR = {"cached_price": 0.01}


def work(n: int, words: int = 200) -> list[Round]:
    reads = [read(f"{k}.py", words) for k in range(n)]
    return rounds(set_plan(4), *reads, planctl(("complete", 1), ("start", 2)))


def test_it_asks_and_applies_where_caching_saves_little() -> None:
    result = ran(arm("plan_prune_cached", **CHEAP), work(12), prunes(1, 2, 3))
    assert removed_commands(result, "prune") == ["cat 0.py", "cat 1.py", "cat 2.py"]


def test_it_does_not_even_ask_where_no_answer_could_pay() -> None:
    assert ran(arm("plan_prune_cached", **DEAR), work(12)).requests == []


def choosing_early(*more: Act) -> list[Round]:
    """A small output is chosen that lies before much that stays: its cut pays only later."""
    first, *others = [read("0.py", 60), *[read(f"{k}.py", 300) for k in range(1, 6)]]
    done = planctl(("complete", 1), ("start", 2))
    small = [read(f"{k}.txt", 8) for k in range(60)]
    return rounds(set_plan(4), first, *others, done, *more, *small)


def late(*more: Act) -> list[str | None]:
    spec = arm("plan_prune_cached", **QUEUES)
    return removed_commands(ran(spec, choosing_early(*more), prunes(1)), "prune")


QUEUES = {"cached_price": 0.5, "output_price": 0.0, "first_output_tokens": 0.0}


def test_a_choice_waits_in_the_queue_until_it_pays() -> None:
    result = ran(arm("plan_prune_cached", **QUEUES), choosing_early(), prunes(1))
    (asked_at,) = [d.message_index for d in result.trajectory.decisions]
    (applied_at,) = [m.n_messages for m in result.moments if m.new]
    assert asked_at < applied_at
    assert removed_commands(result, "prune") == ["cat 0.py"]


def test_a_queued_output_that_is_fetched_or_quoted_again_leaves_the_queue() -> None:
    assert late() == ["cat 0.py"]
    assert late(read("0.py", 300)) == []
    assert late(Act(command="vim 0.py", output="opened")) == []


FRAME = ("<returncode>0</returncode>\n<output>\n", "\n</output>")


def framed(act: Act) -> Act:
    return replace(act, frame=FRAME)


def test_the_wrapper_around_every_output_fetches_nothing_again() -> None:
    """A command without output shows the wrapper's lines only, as the queued output did too."""
    spec = arm("plan_prune_cached", **QUEUES)
    quiet = [Act(command=f"touch {k}") for k in range(3)]
    script = [
        replace(round_, acts=tuple(map(framed, round_.acts))) for round_ in choosing_early(*quiet)
    ]
    assert removed_commands(ran(spec, script, prunes(1)), "prune") == ["cat 0.py"]


def test_everything_queued_is_applied_before_the_window_is_full() -> None:
    spec = arm("plan_prune_cached", **QUEUES)
    script = choosing_early(*[read(f"big{k}", 600) for k in range(4)])[:-60]
    assert ran(spec, script, prunes(1)).standing == {}
    full = ran(spec, script, prunes(1), context_length=4000)
    assert removed_commands(full, "prune") == ["cat 0.py"]


def test_a_running_mean_of_answers_replaces_the_first_guess() -> None:
    spec = arm("plan_prune_cached", **{**CHEAP, "first_output_tokens": 1e9})
    assert ran(spec, work(12)).requests == []


@pytest.mark.parametrize(("source", "asks"), [("so_far", True), ("pilot", False), ("plan", True)])
def test_calls_to_come_are_guessed_from_the_pilot_the_plan_or_the_calls_so_far(
    source: str, asks: bool
) -> None:
    # Every pilot run was over by now, so nothing is to be gained.
    spec = arm(
        "plan_prune_cached",
        **CHEAP,
        calls_to_come=source,
        pilot_calls=[5, 6],
        pilot_capped=[False, False],
    )
    result = ran(spec, work(12), prunes())
    assert bool(result.requests) is asks


def test_ids_in_answers_are_read_as_in_plan_prune() -> None:
    spec = arm("plan_prune_cached", **CHEAP)
    result = ran(spec, work(12), prunes("2", 99, 12))
    assert removed_commands(result, "prune") == ["cat 1.py", "cat 11.py"]
    assert json.loads(result.trajectory.decisions[0].tool_calls[0].arguments) == {
        "ids": ["2", 99, 12]
    }


def test_a_command_that_outlasts_the_cache_lets_every_queued_choice_through() -> None:
    spec = arm("plan_prune_cached", **QUEUES, ttl_s=300.0)
    quick, slow = (Act(command="make test", output="ok", waited_s=s) for s in (299.0, 301.0))
    applied = [
        next(m.n_messages for m in ran(spec, choosing_early(act), prunes(1)).moments if m.new)
        for act in (quick, slow)
    ]
    asked = ran(spec, choosing_early(), prunes(1)).trajectory.decisions[0].message_index
    assert applied[1] == asked + 2 < applied[0]
