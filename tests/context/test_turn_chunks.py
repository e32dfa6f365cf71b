"""`turn_chunks`: recency by turns, the view rewritten once a chunk."""

import pytest

from pipeline.views.trajectory import Part
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands
from tests.context.scripts import Ran, Round, read, rounds, set_plan


def run_of(n: int, **parameters: object) -> Ran:
    script = [Round(acts=(read(f"{k}.py"),), reasoning=f"thought {k}") for k in range(n)]
    return ran(arm("turn_chunks", **parameters), script)


def test_the_view_is_rewritten_every_ten_turns_and_only_grows_in_between() -> None:
    run = run_of(45)
    assert [m.n_turns for m in run.moments if m.new] == [20, 30, 40]


def test_right_after_a_rewrite_ten_turns_are_whole() -> None:
    gone = {e.message_index for e in run_of(29).edits("chunk") if e.part is Part.CONTENT}
    assert gone == {2 + 2 * k + 1 for k in range(10)}


def test_chunks_of_one_turn_are_rolling_recency() -> None:
    run = run_of(6, keep_last_turns=2, chunk_turns=1)
    assert [m.n_turns for m in run.moments if m.new] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("both", {Part.CONTENT, Part.REASONING}),
        ("output", {Part.CONTENT}),
        ("reasoning", {Part.REASONING}),
    ],
)
def test_older_turns_lose_what_the_scope_says(scope: str, parts: set[Part]) -> None:
    run = run_of(4, keep_last_turns=1, chunk_turns=2, scope=scope)
    assert {e.part for e in run.edits("chunk")} == parts


def test_plan_results_stay() -> None:
    script = rounds(set_plan(2), read("a.py"), read("b.py"))
    run = ran(arm("turn_chunks", keep_last_turns=0, chunk_turns=1), script)
    assert removed_commands(run, "chunk") == ["cat a.py", "cat b.py"]
