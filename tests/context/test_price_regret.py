"""Replayed arms against every schedule there is (docs/methods.md, Cheapest schedule)."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.accounting.best_schedule import MAX_CALLS
from pipeline.replaying.money import Tariffs
from pipeline.replaying.price_regret import Schedules
from pipeline.replaying.replay import Recording, Replayed, Replayer, ReplaySettings
from pipeline.replaying.replay_report import cost as cost_by_tariffs
from pipeline.spec.arm import ArmSpec
from pipeline.spec.pricing import PriceList, Pricing
from pipeline.views.policy import Ask
from pipeline.views.shown import PLACEHOLDER, content_edit
from pipeline.views.trajectory import Edit, Edits, Trajectory
from tests.context.arms import all_arms, arm
from tests.context.counters import WordCounter
from tests.context.scripts import Act, Round, no_answer, planctl, read, rounds, set_plan
from tests.context.test_replay import live, recording

PRICES = PriceList(name="caching", cached=0.1)
ARMS = {name: spec for name, spec in all_arms().items() if spec.placeholder is None}


def cost(result: Replayed, prices: PriceList) -> float:
    pricing = Pricing(name="p", as_of="", currency="", lists={prices.name: prices})
    tariffs = Tariffs(pricing=pricing, chosen=prices.name, model=None, for_hour=False)
    return cost_by_tariffs(result, tariffs)


class Fixed:
    """A schedule as it is: the call from which on each output is gone."""

    def __init__(self, recording: Recording, removals: dict[int, int]) -> None:
        self._calls, self._removals = recording.calls, removals

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        here = next(
            k for k, call in enumerate(self._calls) if call.n_messages == len(trajectory.messages)
        )
        return [
            content_edit(trajectory.messages[index], PLACEHOLDER, "fixed")
            for index, call in self._removals.items()
            if call == here
        ]


def all_schedules(recording: Recording) -> Iterator[dict[int, int]]:
    """Every choice of calls: each output may go once one call has shown it, or stay."""
    shown_at = {
        m.index: next(k for k, call in enumerate(recording.calls) if call.n_messages > m.index)
        for m in recording.trajectory.observations()
        if m.is_prunable and m.index < recording.calls[-1].n_messages
    }
    n_calls = len(recording.calls)
    choices = [[None, *range(first + 1, n_calls)] for first in shown_at.values()]
    for calls in product(*choices):
        yield {index: call for index, call in zip(shown_at, calls, strict=True) if call is not None}


def replayer_of(recording: Recording) -> Replayer:
    return Replayer(recording, WordCounter(), ReplaySettings(block_tokens=1))


turns = st.builds(
    lambda words, thought, wait: Round(
        acts=(Act(command="cat f", output="w " * words, waited_s=wait),),
        reasoning="t " * thought,
    ),
    st.integers(1, 60),
    st.integers(0, 60),
    st.sampled_from([1.0, 1.0, 400.0]),
)
some_prices = st.builds(
    lambda cached, write, ttl: PriceList(name="p", cached=cached, write=write, ttl_s=ttl),
    st.sampled_from([0.0, 0.025, 0.1, 0.5, 1.0]),
    st.sampled_from([None, 1.25]),
    st.sampled_from([None, 300.0]),
)


@given(script=st.lists(turns, min_size=2, max_size=5), prices=some_prices)
@settings(max_examples=40, deadline=None)
def test_no_schedule_that_replay_can_price_is_cheaper(
    script: list[Round], prices: PriceList
) -> None:
    found = recording(live(script, "full_history", no_answer))
    replayer = replayer_of(found)
    costs = [
        cost(replayer.replay_policy("fixed", Fixed(found, removals)), prices)
        for removals in all_schedules(found)
    ]
    best = Schedules(found, replayer, prices).cheapest()
    assert best is not None
    assert cost(best, prices) == pytest.approx(min(costs))


def worked(n: int = 24) -> Recording:
    acts = [set_plan(2), *[read(f"{k}.py", 60) for k in range(n)], planctl(("complete", 1))]
    script = [Round(acts=(act,), reasoning="so " * 30) for act in acts]
    return recording(live(script, "full_history", no_answer))


def regrets(spec: ArmSpec) -> tuple[float, float | None]:
    """The price regret of an arm, and its timing part."""
    found = worked()
    replayer = replayer_of(found)
    schedules, result = Schedules(found, replayer, PRICES), replayer.replay(spec)
    best, retimed = schedules.cheapest(), schedules.retimed(result)
    assert best is not None
    own = cost(result, PRICES)
    return own - cost(best, PRICES), None if retimed is None else own - cost(retimed, PRICES)


def test_an_arm_that_cuts_in_every_call_regrets_its_timing_and_one_in_batches_does_less() -> None:
    rolling, rolling_timing = regrets(arm("observation_mask", keep_last_turns=5))
    batched, batched_timing = regrets(arm("observation_mask", keep_last_turns=5, polling=5))
    assert rolling > batched > 0
    assert rolling_timing is not None
    assert batched_timing is not None
    assert rolling_timing > 2 * batched_timing


@pytest.mark.parametrize("name", sorted(ARMS))
def test_no_arm_that_only_removes_is_better_than_the_cheapest_schedule(name: str) -> None:
    """Nor than its own removals at their cheapest moments, which cannot beat the best of all."""
    regret, timing = regrets(ARMS[name])
    if timing is not None:
        assert regret + 1e-6 >= timing >= -1e-6


def test_full_history_regrets_all_that_could_have_gone_and_no_timing() -> None:
    regret, timing = regrets(arm("full_history"))
    assert regret > 0
    assert timing == 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llm_summary", {"summarise_turns": 3, "keep_last_turns": 2}),
        ("offload", {"min_tokens": 20}),
        ("clear_thinking", {}),
    ],
)
def test_an_arm_that_does_more_than_remove_what_was_shown_has_no_timing(
    name: str, parameters: dict[str, object]
) -> None:
    assert regrets(arm(name, **parameters))[1] is None


def test_a_run_of_too_many_calls_has_no_schedule() -> None:
    found = worked(MAX_CALLS)
    replayer = replayer_of(found)
    schedules = Schedules(found, replayer, PRICES)
    assert schedules.cheapest() is None
    assert schedules.retimed(replayer.replay(arm("full_history"))) is None


def test_an_arm_that_is_the_best_schedule_itself_has_no_regret() -> None:
    """Without a discount everything goes at once: what a mask of one turn does."""
    found = recording(
        live(rounds(*[read(f"{k}.py", 60) for k in range(9)]), "full_history", no_answer)
    )
    replayer = replayer_of(found)
    flat = PriceList(name="flat")
    mask = replayer.replay(arm("lot_size", cached_price=1.0))
    best: Replayed | None = Schedules(found, replayer, flat).cheapest()
    assert best is not None
    assert cost(mask, flat) == cost(best, flat)
