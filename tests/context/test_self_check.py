"""Replay's self-check: what it would have read from the cache beside what was recorded."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.replaying.replay import Recording, Replayer, ReplaySettings, StepCall
from pipeline.replaying.self_check import SelfCheck, self_check, total
from pipeline.views.trajectory import RECORDED, Edit, Message, Part, Trajectory
from tests.context.arms import arm
from tests.context.counters import WordCounter

SIZES = (100, 140, 200)


def recording(
    cached: tuple[int | None, ...],
    *,
    edited_at: int | None = None,
    reason: str = RECORDED,
    waits: Sequence[float | None] = (None,) * 3,
) -> Recording:
    """Three calls whose prompts only grow."""
    trajectory = Trajectory()
    calls = []
    for number, (size, read) in enumerate(zip(SIZES, cached, strict=True)):
        index = 2 * number
        said = f"word{number} " * 20
        trajectory.append(
            [
                Message(
                    index=index,
                    step_index=number,
                    role="user",
                    content=said,
                    n_tokens=20,
                    waited_s=waits[number],
                )
            ]
        )
        edits = (Edit(message_index=0, part=Part.DROPPED, text="", reason=reason),)
        calls.append(
            StepCall(
                n_messages=index + 1,
                prompt_tokens=size,
                completion_tokens=5,
                cached_tokens=read,
                edits=edits if number == edited_at else (),
            )
        )
        reply = Message(index=index + 1, step_index=number + 1, role="assistant", content="said")
        trajectory.append([reply])
    return Recording(instance_id="i", trajectory=trajectory, calls=tuple(calls))


def check(found: Recording, *, ttl_s: float | None = None) -> SelfCheck:
    settings = ReplaySettings(block_tokens=1)
    replayer = Replayer(found, WordCounter(), settings)
    whole = replayer.replay(arm("full_history"))
    return self_check(found, whole, replayer.calibration, ttl_s=ttl_s)


def test_a_history_that_only_grows_is_read_up_to_the_last_answer() -> None:
    found = check(recording((0, 100, 140)))
    assert (found.n_calls, found.n_compared, found.recorded) == (3, 3, 240)
    assert found.replayed == pytest.approx(240, abs=12)
    assert "over 3 of 3 calls" in " ".join(found.sentences)


def test_calls_without_recorded_reads_are_not_compared() -> None:
    found = check(recording((None, None, 140)))
    assert (found.n_compared, found.recorded) == (1, 140)
    none = check(recording((None, None, None)))
    assert next(none.sentences) == "Self-check: none of 3 calls has cache reads to compare with."


def test_a_server_without_a_cache_is_no_division_by_zero() -> None:
    assert "recorded as none" in " ".join(check(recording((0, 0, 0))).sentences)


def test_what_follows_an_arms_edit_was_never_sent_and_is_not_compared() -> None:
    assert check(recording((0, 100, 30), edited_at=2, reason="mask")).n_compared == 2


def test_what_the_recording_tool_removed_is_replayed_and_compared() -> None:
    """A compacted session was compared up to its first compaction only."""
    # What is left after it is the part of every prompt that the file does not hold: 100 - 20.
    found = check(recording((0, 100, 80), edited_at=2))
    assert (found.n_compared, found.recorded) == (3, 180)
    assert found.replayed == pytest.approx(180, abs=12)


def test_an_idle_gap_beyond_the_time_to_live_reads_nothing() -> None:
    found = recording((0, 100, 0), waits=(None, 10.0, 301.0))
    assert check(found, ttl_s=300.0).replayed == pytest.approx(100, abs=12)
    assert check(found, ttl_s=3600.0).replayed == pytest.approx(240, abs=12)


def test_writes_are_compared_where_they_are_recorded() -> None:
    one = recording((0, 100, 140))
    calls = tuple(
        replace(call, written_tokens=written)
        for call, written in zip(one.calls, (100, 40, None), strict=True)
    )
    found = check(replace(one, calls=calls))
    assert found.written_recorded == 140
    assert found.written_replayed == pytest.approx(140, abs=12)
    assert "writes are recorded as 140 tokens" in next(found.sentences)


def test_what_the_file_does_not_hold_is_told_from_the_first_prompt() -> None:
    found = check(recording((0, 100, 140)))
    assert found.hidden_tokens == (100 - 20,)
    assert (found.prompt_replayed, found.prompt_recorded) == (440, 440)


def test_the_residual_is_what_one_ratio_for_all_steps_misses() -> None:
    found = check(recording((0, 100, 140)))
    # By hand: after the answer of 5 tokens the prompts grew by 35 and 55, each time 20 words.
    grown, ratio = (35, 55), (35 + 55) / 40
    assert found.served_tokens == 90
    assert found.residual_tokens == pytest.approx(sum(abs(g - 20 * ratio) for g in grown))


def test_a_replay_that_is_off_says_what_may_be_behind_it() -> None:
    far = " ".join(check(recording((0, 50, 140))).sentences)
    assert "off by more than 2%" in far


def test_checks_add_up() -> None:
    one = check(recording((0, 100, 140)))
    both = total([one, one])
    for name in ("n_calls", "recorded", "replayed", "prompt_recorded", "residual_tokens"):
        assert getattr(both, name) == 2 * getattr(one, name)
    assert both.hidden_tokens == (80, 80)
    assert total([]).n_calls == 0
