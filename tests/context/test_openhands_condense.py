"""`openhands_condense`: past a number of events a summary replaces the middle of the view."""

from pipeline.views.trajectory import view_messages
from tests.context.arms import arm
from tests.context.driving import ran, shown
from tests.context.scripts import Ran, Round, planctl, read, rounds, says


def run_of(n: int, *, answer: str = "notes", **parameters: object) -> Ran:
    script = rounds(*[read(f"{k}.py") for k in range(n)])
    return ran(arm("openhands_condense", **parameters), script, says(answer))


def test_more_than_240_events_are_condensed_to_half() -> None:
    assert run_of(119).requests == []
    run = run_of(120)
    assert len(run.requests) == 1
    # 117 of the tail's 120 places: the first two, the summary, and whole turns.
    assert len(shown(run)) == 2 + 1 + 116
    assert shown(run)[2].endswith("notes")


def test_the_summary_is_made_of_what_goes_and_counts_as_an_event() -> None:
    run = run_of(18, max_events=20)
    first, second, *_ = run.requests
    asked = (first.messages or ())[1]["content"]
    assert "Task:\nFix the bug." in asked
    assert "0.py:0" in asked
    again = (second.messages or ())[1]["content"]
    assert again.startswith("Notes so far:")
    assert "$ cat 0.py" not in again
    sizes = [
        2 + 2 * m.n_turns - sum(e.part == "dropped" for e in m.before.values()) + bool(m.before)
        for m in run.moments
        if m.new
    ]
    assert sizes == [22, 21, 21, 21][: len(sizes)]


def test_nothing_is_condensed_where_less_than_a_tenth_would_go() -> None:
    """The turns that show the plan stay, so little goes in a run full of them."""
    plans = [planctl(("start", 1), output=f"plan {k}") for k in range(9)]
    script = rounds(*plans, read("a.py"), read("b.py"))
    few = ran(arm("openhands_condense", max_events=22, min_progress_share=0.2), script)
    assert few.requests == []


def test_a_turn_with_many_results_is_never_cut_in_two() -> None:
    many = Round(acts=tuple(read(f"{k}.py") for k in range(12)))
    run = ran(
        arm("openhands_condense", max_events=10), [*rounds(read("a.py")), many], says("notes")
    )
    view = view_messages(run.trajectory, run.standing)
    assert [m["role"] for m in view[:5]] == ["system", "user", "user", "assistant", "tool"]
    assert len(view) == 3 + 13


def test_a_turn_of_which_the_first_events_hold_a_part_stays_whole() -> None:
    run = run_of(10, max_events=20, keep_first_events=3)
    assert "0.py:0" in shown(run)[3]
    assert shown(run)[4].endswith("notes")


def test_an_empty_summary_replaces_nothing() -> None:
    assert run_of(10, answer=" ", max_events=20).standing == {}
