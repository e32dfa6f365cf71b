"""What sessions cost: recorded usage priced token by token, breaks of the cache, the sentences."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.replaying.money import Reason, SessionCost, session_cost, tariffs_of
from pipeline.replaying.money_answer import amount, answer_lines
from pipeline.replaying.replay import Recording, Replayed, Replayer, ReplaySettings, StepCall
from pipeline.replaying.replay_report import Priced, priced
from pipeline.spec.pricing import PriceList, Pricing, Tariff, pricing_from
from pipeline.views.trajectory import Message, Trajectory
from tests.context.arms import arm
from tests.context.counters import WordCounter

SONNET = {"input": 2.0, "cached": 0.2, "output": 10.0, "write": 2.5, "ttl_s": 300.0}
PRICING = pricing_from(
    {
        "name": "shop",
        "as_of": "2026-11",
        "currency": "USD",
        "per_tokens": 1_000_000,
        "lists": {
            "claude_sonnet_5m": SONNET,
            "claude_sonnet_1h": {**SONNET, "write": 4.0, "ttl_s": 3600.0},
            "gpt_5": {"input": 4.0, "cached": 0.4, "output": 20.0},
            "gpt_5_6": {"input": 1.0, "cached": 0.1, "output": 5.0},
        },
    }
)


# --- prices of recorded usage ---------------------------------------------------------------------
def token_by_token(
    tariff: Tariff,
    prompt: int,
    cached: int,
    written: int | None,
    written_1h: int | None,
    completion: int,
) -> float:
    """METHODS, Cost, one token after the other: hits first, then writes, then the rest."""
    total = 0.0
    hits = min(cached, prompt)
    long_enough = prompt >= max(1, tariff.prices.min_prefix)
    writes = written if written is not None else (prompt - hits if long_enough else 0)
    for position in range(prompt):
        if position < hits:
            total += tariff.prices.cached
        elif position < hits + writes:
            nth = position - hits
            last_for_hour = nth >= min(writes, prompt - hits) - (written_1h or 0)
            kept = tariff.hour if tariff.hour is not None and last_for_hour else tariff.prices
            total += kept.written
        else:
            total += tariff.prices.input
    return total + sum(tariff.prices.output for _ in range(completion))


sizes = st.integers(0, 40)


@given(
    prompt=sizes,
    cached=sizes,
    written=st.none() | sizes,
    written_1h=st.none() | sizes,
    completion=sizes,
    has_hour=st.booleans(),
    min_prefix=st.sampled_from([0, 10]),
)
def test_a_recorded_call_costs_what_its_tokens_cost_one_by_one(
    prompt: int,
    cached: int,
    written: int | None,
    written_1h: int | None,
    completion: int,
    has_hour: bool,
    min_prefix: int,
) -> None:
    prices = PriceList(
        name="p", input=2.0, cached=0.25, output=8.0, write=3.0, min_prefix=min_prefix
    )
    tariff = Tariff(prices=prices, hour=replace(prices, write=5.0) if has_hour else None)
    cost = tariff.recorded_cost(
        prompt=prompt, cached=cached, written=written, written_1h=written_1h, completion=completion
    )
    slow = token_by_token(tariff, prompt, cached, written, written_1h, completion)
    assert cost == pytest.approx(slow)


@pytest.mark.parametrize(
    ("model", "name", "hour"),
    [
        ("claude-sonnet", "claude_sonnet_5m", "claude_sonnet_1h"),
        ("anthropic/claude-sonnet-20260915", "claude_sonnet_5m", "claude_sonnet_1h"),
        ("Claude-Sonnet[1m]", "claude_sonnet_5m", "claude_sonnet_1h"),
        ("gpt-5.6", "gpt_5_6", None),
        ("gpt-5-2026-08-07", "gpt_5", None),
    ],
)
def test_a_model_is_priced_by_the_list_of_its_name(model: str, name: str, hour: str | None) -> None:
    tariff = PRICING.tariff_of(model)
    assert (tariff.prices.name, tariff.hour and tariff.hour.name) == (name, hour)
    assert tariff.is_of_model


@pytest.mark.parametrize("model", ["gpt-5-mini", "claude-sonnet-9", None, ""])
def test_a_model_without_a_list_gets_a_stand_in_that_is_known_as_one(model: str | None) -> None:
    assert not PRICING.tariff_of(model).is_of_model


# --- sessions -------------------------------------------------------------------------------------
def session(*calls: StepCall, waits: Sequence[float | None] = (), **more: object) -> Recording:
    """A history that only grows: a user's message of 20 words before each of the calls."""
    trajectory = Trajectory()
    placed = []
    for number, call in enumerate(calls):
        user = Message(
            index=2 * number,
            step_index=number,
            role="user",
            content=f"word{number} " * 20,
            n_tokens=20,
            waited_s=waits[number] if waits else None,
        )
        reply = Message(index=2 * number + 1, step_index=number + 1, role="assistant", content="ok")
        trajectory.append([user, reply])
        placed.append(replace(call, n_messages=2 * number + 1))
    known = {"model": "claude-sonnet", "instance_id": "i", **more}
    return Recording(trajectory=trajectory, calls=tuple(placed), **known)  # type: ignore[arg-type]


def call(prompt: int | None, cached: int | None, written: int | None, **more: object) -> StepCall:
    return StepCall(
        n_messages=0,
        prompt_tokens=prompt,
        completion_tokens=5,
        cached_tokens=cached,
        written_tokens=written,
        **more,  # type: ignore[arg-type]
    )


GROWING = (call(100, 0, 100), call(125, 105, 20), call(150, 130, 20))


def replayed(recording: Recording) -> Replayed:
    replayer = Replayer(recording, WordCounter(), ReplaySettings(block_tokens=1))
    return replayer.replay(arm("full_history"))


def cost_of(recording: Recording, pricing: Pricing = PRICING) -> SessionCost:
    return session_cost(recording, replayed(recording), tariffs_of(recording, pricing, None))


def test_a_session_costs_the_sum_of_its_calls() -> None:
    found = cost_of(session(*GROWING))
    hits, written, out = 105 + 130, 100 + 20 + 20, 15
    assert found.cost == pytest.approx((0.2 * hits + 2.5 * written + 10 * out) / 1e6)
    assert (found.n_calls, found.n_known, found.breaks) == (3, 3, ())


def test_calls_beside_the_conversation_cost_too() -> None:
    whole = cost_of(session(*GROWING, aside=(call(50, 0, 50),)))
    assert whole.aside_cost == pytest.approx((2.5 * 50 + 10 * 5) / 1e6)
    assert whole.cost == pytest.approx(cost_of(session(*GROWING)).cost + whole.aside_cost)
    assert (whole.n_calls, whole.n_aside) == (4, 1)


def test_calls_that_another_file_bills_cost_nothing_here_and_warm_the_cache() -> None:
    fork = session(*GROWING, n_repeated=2)
    found = cost_of(fork)
    assert found.cost == pytest.approx((0.2 * 130 + 2.5 * 20 + 10 * 5) / 1e6)
    assert [c.cache.lcp_tokens for c in replayed(fork).calls] == [130]
    assert found.breaks == ()


@pytest.mark.parametrize("broken", [call(None, None, None), call(150, None, None)])
def test_a_call_without_a_full_usage_is_not_part_of_the_cost(broken: StepCall) -> None:
    found = cost_of(session(*GROWING[:2], broken))
    assert (found.n_calls, found.n_known) == (3, 2)
    assert found.cost == pytest.approx(cost_of(session(*GROWING[:2])).cost)


def test_a_gap_beyond_the_time_to_live_is_why_a_cache_broke() -> None:
    cold = session(*GROWING[:2], call(150, 0, 150), waits=(None, 10.0, 301.0))
    (broken,) = cost_of(cold).breaks
    assert (broken.call, broken.reason, broken.lost_tokens) == (2, Reason.IDLE, 130)
    assert broken.cost == pytest.approx(130 * (2.5 - 0.2) / 1e6)


def test_a_gap_that_lost_nothing_is_no_break() -> None:
    """The record decides: this prefix was read although it was idle for ten minutes."""
    assert cost_of(session(*GROWING, waits=(None, 10.0, 600.0))).breaks == ()


def test_another_model_has_not_the_prefix_in_its_cache() -> None:
    first, second = (replace(c, model="claude-sonnet") for c in GROWING[:2])
    switched = session(first, second, call(150, 0, 150, model="gpt-5"))
    (broken,) = cost_of(switched).breaks
    assert broken.reason is Reason.MODEL
    assert broken.cost == pytest.approx(130 * (4.0 - 0.4) / 1e6)


def test_a_call_that_does_not_name_its_model_has_not_changed_it() -> None:
    first, second, third = GROWING
    found = replayed(session(first, replace(second, model="claude-sonnet"), third))
    assert [c.is_other_model for c in found.calls] == [False, False, False]


def test_a_miss_without_a_reason_in_the_file_is_called_so() -> None:
    (broken,) = cost_of(session(*GROWING[:2], call(150, 30, 120))).breaks
    assert (broken.reason, broken.lost_tokens) == (Reason.UNKNOWN, 100)


def test_without_recorded_reads_only_the_time_to_live_tells_of_breaks() -> None:
    unknown = [replace(c, cached_tokens=None) for c in GROWING]
    found = cost_of(session(*unknown, waits=(None, 301.0, 10.0)))
    assert [(b.call, b.reason) for b in found.breaks] == [(1, Reason.IDLE)]
    assert found.n_known == 0


def test_a_session_that_writes_for_an_hour_is_replayed_under_that_list() -> None:
    hourly = [replace(c, written_1h_tokens=c.written_tokens) for c in GROWING]
    recording = session(*hourly, waits=(None, 10.0, 600.0))
    tariffs = tariffs_of(recording, PRICING, None)
    assert tariffs.prices().name == "claude_sonnet_1h"
    hits, written, out = 105 + 130, 100 + 20 + 20, 15
    assert cost_of(recording).cost == pytest.approx((0.2 * hits + 4 * written + 10 * out) / 1e6)


# --- the answer -----------------------------------------------------------------------------------
def results(recording: Recording, *names: str) -> dict[str, list[Priced]]:
    replayer = Replayer(recording, WordCounter(), ReplaySettings(block_tokens=1))
    tariffs = tariffs_of(recording, PRICING, None)
    whole = replayer.replay(arm("full_history"))
    cost = session_cost(recording, whole, tariffs)
    return {
        name: [priced(replayer.replay(arm(name)), tariffs, cost)]
        for name in ("full_history", *names)
    }


def test_a_replayed_session_costs_what_its_recorded_usage_costs() -> None:
    recording = session(*GROWING, waits=(None, 10.0, 20.0))
    (whole,) = results(recording)["full_history"]
    assert whole.row.cost_cached == pytest.approx(cost_of(recording).cost)
    assert whole.row.cost_recorded == pytest.approx(whole.row.cost_cached)


def test_the_answer_says_costs_gaps_and_what_it_does_not_say() -> None:
    recording = session(*GROWING[:2], call(150, 0, 150), waits=(None, 10.0, 301.0))
    text = "\n".join(answer_lines(results(recording, "observation_mask"), PRICING))
    cost = (0.2 * 105 + 2.5 * 270 + 150) / 1e6
    assert f"1 session with 3 calls cost USD {cost:.6f} by their recorded usage" in text
    assert "observation_mask did nothing in these sessions" in text
    assert "lost to 1 gap longer than the 5 minutes" in text
    assert "only a paired sweep shows that" in text


def test_models_without_prices_are_named_with_what_stands_in() -> None:
    recording = session(*GROWING, model="llama")
    text = "\n".join(answer_lines(results(recording), PRICING))
    assert "llama as claude_sonnet_5m" in text


@pytest.mark.parametrize(
    ("cost", "currency", "said"),
    [
        (1234.5, "USD", "USD 1,234.50"),
        (0.0123456, "USD", "USD 0.0123"),
        (0.0, "USD", "USD 0.00"),
        (1234.4, "input tokens", "what 1,234 uncached input tokens cost"),
    ],
)
def test_amounts_have_a_currency_and_as_many_digits_as_they_need(
    cost: float, currency: str, said: str
) -> None:
    assert amount(cost, currency) == said
