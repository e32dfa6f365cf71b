"""Server time charged to runs sums to the time the server was busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.protocols import ChatReply, ChatRequest
from pipeline.records.failure import ServerError
from pipeline.worker.busy import BusyMeter, MeteredCompleter


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_call_alone_is_charged_all_its_time_and_two_share_it() -> None:
    clock = Clock()
    meter = BusyMeter(clock)
    first = meter.begin()
    clock.now_s = 4
    second = meter.begin()
    clock.now_s = 6
    meter.end(first, "a")
    clock.now_s = 9
    meter.end(second, "b")
    clock.now_s = 100
    assert (meter.take("a"), meter.take("b")) == (5.0, 4.0)
    assert meter.busy_s == 9.0
    assert meter.take("a") == 0.0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100, allow_nan=False),
            st.floats(0.001, 50, allow_nan=False),
            st.sampled_from("abc"),
        ),
        max_size=20,
    )
)
def test_the_shares_sum_to_the_busy_time_whatever_overlaps(
    calls: list[tuple[float, float, str]],
) -> None:
    clock = Clock()
    meter = BusyMeter(clock)
    events = sorted(
        (at, n, edge)
        for n, (start, length, _) in enumerate(calls)
        for at, edge in ((start, "begin"), (start + length, "end"))
    )
    began: dict[int, float] = {}
    for at, n, edge in events:
        clock.now_s = at
        if edge == "begin":
            began[n] = meter.begin()
        else:
            meter.end(began[n], calls[n][2])
    assert sum(meter.take(user) for user in "abc") == pytest.approx(meter.busy_s)


def test_a_failed_call_is_charged_too() -> None:
    clock = Clock()
    meter = BusyMeter(clock)

    class Broken:
        def complete(self, request: ChatRequest) -> ChatReply:  # noqa: ARG002
            clock.now_s += 3
            raise ServerError("gone")

    request = ChatRequest(messages=[], seed=0, max_tokens=1, cache_salt="")
    with pytest.raises(ServerError):
        MeteredCompleter(Broken(), meter, "a").complete(request)
    assert meter.take("a") == 3.0
    assert meter.tokens == 0
