"""Whether another run may start before the job ends."""

import math

import pytest

from pipeline.worker.deadline import Deadline, percentile_95


def deadline(left_s: float | None, wall_s: list[float] | None = None) -> Deadline:
    end = None if left_s is None else 1000.0 + left_s
    return Deadline(
        end_unix_s=end,
        margin_s=100.0,
        expected_wall_s=600.0,
        now_unix_s=lambda: 1000.0,
        wall_s=wall_s or [],
    )


def test_without_an_end_everything_may_start() -> None:
    assert deadline(None).may_start()
    assert deadline(None).left_s == math.inf
    assert not deadline(None).must_abort(1e9)


def test_the_expected_time_and_the_margin_must_be_left() -> None:
    assert deadline(700).may_start()
    assert not deadline(699).may_start()


def test_the_expectation_holds_until_five_runs_are_known() -> None:
    assert not deadline(300, [10.0] * 4).may_start()
    assert deadline(300, [10.0] * 5).may_start()


def test_the_slow_runs_decide_and_not_the_average() -> None:
    times = [10.0] * 90 + [400.0] * 10
    assert not deadline(300, times).may_start()
    assert deadline(500, times).may_start()


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile_95([float(n) for n in range(1, 101)]) == 95.0
    assert percentile_95([3.0]) == 3.0
    with pytest.raises(ValueError, match="no run times"):
        percentile_95([])


def test_runs_are_given_up_when_only_the_reserve_is_left() -> None:
    assert deadline(30).must_abort(30)
    assert not deadline(31).must_abort(30)
