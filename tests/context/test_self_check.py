"""Replay's self-check: what it would have read from the cache beside what was recorded."""

from dataclasses import replace

import pytest

from pipeline.replaying.replay import Recording, Replayer, ReplaySettings, StepCall
from pipeline.replaying.self_check import SelfCheck, self_check, total
from pipeline.views.trajectory import RECORDED, Edit, Message, Part, Trajectory
from tests.context.arms import arm
from tests.context.counters import WordCounter

SIZES = (100, 140, 200)


def recording(
    cached: tuple[int | None, ...], *, edited_at: int | None = None, reason: str = RECORDED
) -> Recording:
    """Three calls whose prompts only grow."""
    trajectory = Trajectory()
    calls = []
    for number, (size, read) in enumerate(zip(SIZES, cached, strict=True)):
        index = 2 * number
        said = f"word{number} " * 20
        trajectory.append(
            [Message(index=index, step_index=number, role="user", content=said, n_tokens=20)]
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


def check(found: Recording) -> SelfCheck:
    settings = ReplaySettings(block_tokens=1)
    replayer = Replayer(found, WordCounter(), settings)
    return self_check(found, replayer.replay(arm("full_history")))


def test_a_history_that_only_grows_is_read_up_to_the_last_answer() -> None:
    found = check(recording((0, 100, 140)))
    assert (found.n_calls, found.n_compared, found.recorded) == (3, 3, 240)
    assert found.replayed == pytest.approx(240, abs=12)
    assert "over 3 of 3 calls" in found.sentence


def test_calls_without_recorded_reads_are_not_compared() -> None:
    found = check(recording((None, None, 140)))
    assert (found.n_compared, found.recorded) == (1, 140)
    none = check(recording((None, None, None)))
    assert none.sentence == "Self-check: none of 3 calls has cache reads to compare with."


def test_a_server_without_a_cache_is_no_division_by_zero() -> None:
    assert "recorded as none" in check(recording((0, 0, 0))).sentence


def test_what_follows_an_arms_edit_was_never_sent_and_is_not_compared() -> None:
    assert check(recording((0, 100, 30), edited_at=2, reason="mask")).n_compared == 2


def test_what_the_recording_tool_removed_is_replayed_and_compared() -> None:
    """A compacted session was compared up to its first compaction only."""
    # What is left after it is the part of every prompt that the file does not hold: 100 - 20.
    found = check(recording((0, 100, 80), edited_at=2))
    assert (found.n_compared, found.recorded) == (3, 180)
    assert found.replayed == pytest.approx(180, abs=12)


def test_checks_add_up() -> None:
    one = check(recording((0, 100, 140)))
    assert total([one, one]) == replace(
        one, n_calls=6, n_compared=6, replayed=2 * one.replayed, recorded=480
    )
    assert total([]).n_calls == 0
