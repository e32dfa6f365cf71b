"""`token_window`: the newest tokens of output stay, older ones go once that frees enough."""

from pipeline.views.trajectory import Edit
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands
from tests.context.scripts import Act, Round, read, rounds, set_plan


def cleared(*acts: Act, **parameters: object) -> list[str | None]:
    return removed_commands(ran(arm("token_window", **parameters), rounds(*acts)), "clear")


FIVE = [read(f"{k}.py", 20) for k in range(5)]


def test_by_default_40k_tokens_stay_and_20k_must_go() -> None:
    chunks = [read(f"{k}.py", 1000) for k in range(62)]
    assert cleared(*chunks[:60]) == []
    assert cleared(*chunks[:61]) == [f"cat {k}.py" for k in range(21)]


def test_the_output_that_exceeds_the_window_is_old_itself() -> None:
    assert cleared(*FIVE, keep_tokens=59, free_at_least_tokens=0)[-1] == "cat 2.py"
    assert cleared(*FIVE, keep_tokens=60, free_at_least_tokens=0)[-1] == "cat 1.py"


def test_nothing_goes_until_more_than_the_minimum_would() -> None:
    assert cleared(*FIVE, keep_tokens=60, free_at_least_tokens=40) == []
    assert cleared(*FIVE, keep_tokens=60, free_at_least_tokens=39) == ["cat 0.py", "cat 1.py"]


def test_the_window_moves_again_only_once_enough_is_old_again() -> None:
    run = ran(
        arm("token_window", keep_tokens=40, free_at_least_tokens=30),
        rounds(*[read(f"{k}.py", 20) for k in range(8)]),
    )
    moments = [[edit.message_index for edit in moment.new] for moment in run.moments if moment.new]
    assert [len(moment) for moment in moments] == [2, 2, 2]


def test_plan_results_and_protected_tools_neither_count_nor_go() -> None:
    skill = Act(command="how to test", output="word " * 50, tool="skill")
    acts = [set_plan(2), skill, *FIVE]
    assert cleared(*acts, keep_tokens=60, free_at_least_tokens=0) == ["cat 1.py", "cat 0.py"][::-1]


def test_an_output_that_is_shorter_than_its_placeholder_stays() -> None:
    short = Act(command="true", output="ok")
    assert cleared(short, *FIVE, keep_tokens=80, free_at_least_tokens=0) == ["cat 0.py"]


def test_outputs_since_the_second_newest_user_message_can_be_protected() -> None:
    parameters = {"keep_tokens": 0, "free_at_least_tokens": 0, "protect_user_turns": 2}
    script = [*rounds(read("a.py")), Round(), *rounds(read("b.py")), Round(), *rounds(read("c.py"))]
    edits: list[Edit] = ran(arm("token_window", **parameters), script).edits("clear")
    assert [edit.message_index for edit in edits] == [3]
    assert cleared(*FIVE, **parameters) == []
