"""The cheapest schedule of removals, against every schedule there is (Cheapest schedule)."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.accounting.best_schedule import Removable, best_schedule, schedule_cost
from pipeline.accounting.break_even import Prices

Schedule = tuple[int | None, ...]


class History:
    """A run in which every turn is an answer of some tokens and an output of some tokens."""

    def __init__(
        self,
        task: int,
        turns: Sequence[tuple[int, int]],
        placeholder: int = 1,
        waits: Sequence[int] = (),
    ) -> None:
        """Take sizes in tokens, and for how many more calls than one each output must stay."""
        self.task, self.turns, self.placeholder = task, turns, placeholder
        self.n_calls = len(turns) + 1
        late = [k + 2 + wait for k, wait in enumerate([*waits, *[0] * len(turns)][: len(turns)])]
        self.from_calls = [min(call, self.n_calls) for call in late]

    @property
    def outputs(self) -> list[Removable]:
        sizes = [size for turn in self.turns for size in turn]
        return [
            Removable(
                first_call=k + 1,
                from_call=self.from_calls[k],
                before_tokens=self.task + sum(sizes[: 2 * k + 1]),
                saved_tokens=output - self.placeholder,
            )
            for k, (_, output) in enumerate(self.turns)
        ]

    @property
    def sent_tokens(self) -> list[int]:
        """What was sent or received before each call: all but its newest output."""
        sent = [0]
        for k, (answer, _) in enumerate(self.turns):
            sent.append(self.task + sum(map(sum, self.turns[:k])) + answer)
        return sent

    def schedules(self) -> Iterator[Schedule]:
        moments = [[None, *range(since, self.n_calls)] for since in self.from_calls]
        return product(*moments)

    def prompt(self, call: int, schedule: Schedule) -> list[str]:
        """Every token of a call's prompt, told apart by message, place and version."""
        tokens = [f"task {n}" for n in range(self.task)]
        for k, (answer, output) in enumerate(self.turns[:call]):
            tokens += [f"answer {k} {n}" for n in range(answer)]
            removed = schedule[k]
            gone = removed is not None and removed <= call
            size = self.placeholder if gone else output
            tokens += [f"output {k} {gone} {n}" for n in range(size)]
        return tokens

    def cost(self, schedule: Schedule, prices: Prices, cold: Sequence[bool]) -> float:
        """The slow reference: every prompt token by token, against all that was sent before."""
        total, known = 0.0, [[]]
        for call in range(self.n_calls):
            prompt = self.prompt(call, schedule)
            hits = 0 if cold[call] else max(_common(prompt, before) for before in known)
            total += prices.cached * hits + prices.written * (len(prompt) - hits)
            answer = self.turns[call][0] if call < len(self.turns) else 0
            known.append(prompt + [f"answer {call} {n}" for n in range(answer)])
        return total


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


sizes = st.tuples(st.integers(1, 6), st.integers(3, 25))
histories = st.builds(
    History,
    task=st.integers(1, 20),
    turns=st.lists(sizes, min_size=1, max_size=5),
    placeholder=st.integers(1, 2),
    waits=st.lists(st.integers(0, 3), max_size=5),
)
prices = st.builds(
    lambda cached, write: Prices(input=1.0, cached=cached, output=5.0, write=write),
    st.sampled_from([0.0, 0.025, 0.1, 0.4, 1.0]),
    st.sampled_from([None, 1.25]),
)


@given(history=histories, prices=prices, data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_other_schedule_is_cheaper(
    history: History, prices: Prices, data: st.DataObject
) -> None:
    cold = data.draw(
        st.lists(st.booleans(), min_size=history.n_calls, max_size=history.n_calls)
        | st.just([False] * history.n_calls)
    )
    found = best_schedule(history.outputs, history.sent_tokens, prices, cold=cold)
    cheapest = min(history.cost(s, prices, cold) for s in history.schedules())
    assert history.cost(found, prices, cold) <= cheapest + 1e-6


@given(history=histories, prices=prices, data=st.data())
@settings(max_examples=100, deadline=None)
def test_schedules_cost_as_much_more_than_none_as_token_by_token(
    history: History, prices: Prices, data: st.DataObject
) -> None:
    schedule = data.draw(st.sampled_from(list(history.schedules())))
    flags = st.lists(st.booleans(), min_size=history.n_calls, max_size=history.n_calls)
    cold = data.draw(flags)
    none = (None,) * len(schedule)
    above = history.cost(schedule, prices, cold) - history.cost(none, prices, cold)
    costs = [
        schedule_cost(history.outputs, history.sent_tokens, prices, s, cold=cold)
        for s in (schedule, none)
    ]
    assert costs[0] - costs[1] == pytest.approx(above)


def test_without_a_discount_every_output_goes_as_soon_as_the_model_has_seen_it() -> None:
    history = History(10, [(2, 20)] * 5, placeholder=1)
    prices = Prices(input=1.0, cached=1.0, output=5.0)
    assert best_schedule(history.outputs, history.sent_tokens, prices) == (2, 3, 4, 5, None)


def test_where_reads_are_free_nothing_is_worth_a_cut() -> None:
    history = History(10, [(2, 20)] * 5, placeholder=1)
    prices = Prices(input=1.0, cached=0.0, output=5.0)
    assert set(best_schedule(history.outputs, history.sent_tokens, prices)) == {None}


def test_a_cold_cache_is_when_everything_goes() -> None:
    history = History(10, [(30, 20)] * 5, placeholder=1)
    prices = Prices(input=1.0, cached=0.01, output=5.0)
    cold = [False, False, False, True, False, False]
    found = best_schedule(history.outputs, history.sent_tokens, prices, cold=cold)
    assert found == (3, 3, None, None, None)


def test_a_run_without_outputs_has_an_empty_schedule() -> None:
    assert best_schedule([], [0, 5], Prices(input=1.0, cached=0.1, output=5.0)) == ()
