"""The plan: legal moves, illegal ones, and what the model reads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent.plan_tool import PLANCTL_TOOL, answer_arguments, answer_line
from pipeline.agent.planctl import (
    MAX_STEPS,
    Plan,
    PlanMove,
    PlanRequest,
    StepState,
    allowed_moves,
    moved,
    shown_plan,
)


def after(*lines: str) -> Plan:
    plan = Plan()
    for line in lines:
        move = answer_line(plan, f"planctl {line}")
        assert move.ok, move.text
        plan = move.plan
    return plan


def test_a_whole_plan_is_shown_after_every_move():
    move = answer_line(after("set Find it | Fix it", "start 1"), "planctl complete off by one")
    assert move.text == "Plan, 1 of 2 done:\n[x] 1. Find it -> off by one\n[ ] 2. Fix it"


def test_setting_a_plan_tells_of_the_whole_and_of_each_step():
    move = answer_line(Plan(), "planctl set a | b")
    assert [(c.action, c.plan_step, c.title, c.status) for c in move.changes] == [
        ("set", 0, "a | b", "todo"),
        ("set", 1, "a", "todo"),
        ("set", 2, "b", "todo"),
    ]


def test_completing_tells_the_step_and_its_outcome():
    (change,) = answer_line(after("set a | b", "start 2"), "planctl complete all green").changes
    assert (change.action, change.plan_step, change.status, change.outcome) == (
        "complete",
        2,
        "done",
        "all green",
    )


@pytest.mark.parametrize(
    ("before", "line", "why"),
    [
        ((), "start 1", "no step 1"),
        ((), "set  | ", "at least one step"),
        ((), "add a", "use set"),
        ((), "complete", "no step is active"),
        ((), "dance", "no action 'dance'"),
        ((), "", "no action ''"),
        (("set a | b", "start 1"), "start 2", "step 1 is active"),
        (("set a | b", "start 1"), "start 1", "active already"),
        (("set a | b", "start 1"), "complete 2", "step 2 is not active"),
        (("set a | b", "start 1"), "set c", "revise it"),
        (("set a | b", "start 1", "complete x"), "start 1", "is done"),
        (("set a | b", "start 1", "complete x"), "drop 1", "is done"),
        (("set a | b", "start 1", "complete x"), "rename 1 c", "is done"),
        (("set a",), "drop 1", "empty plan"),
        (("set a | b",), "start two", "number of a step"),
        (("set a | b",), "start", "needs the number"),
        (("set a | b",), "rename 1", "new title"),
        (("set a | b", "drop 2"), "start 2", "no step 2"),
    ],
)
def test_an_illegal_move_changes_nothing_and_says_what_is_allowed(before, line, why):
    plan = after(*before)
    move = answer_line(plan, f"planctl {line}")
    assert not move.ok
    assert move.plan == plan
    assert move.changes == ()
    assert why in move.text
    assert "Allowed now:" in move.text
    assert move.text.endswith(shown_plan(plan))


def test_revising_leaves_the_numbers_of_other_steps_alone():
    plan = after("set a | b | c", "drop 2", "add d", "rename 3 C")
    assert shown_plan(plan) == "Plan, 0 of 3 done:\n[ ] 1. a\n[ ] 3. C\n[ ] 4. d"


def test_a_plan_that_was_not_begun_may_be_set_again():
    assert shown_plan(after("set a | b", "set c")) == "Plan, 0 of 1 done:\n[ ] 1. c"


def test_dropping_the_active_step_leaves_none_active():
    assert after("set a | b", "start 1", "drop 1").active is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "set", "steps": ["a", "b"]},
        {"action": "SET", "steps": "a\nb"},
        {"action": "set", "steps": "a | b", "step": None},
    ],
)
def test_titles_are_read_in_the_forms_models_write_them(arguments):
    assert [s.title for s in answer_arguments(Plan(), arguments).plan.steps] == ["a", "b"]


@pytest.mark.parametrize("step", [2, "2", 2.0])
def test_a_step_number_may_be_written_as_text(step):
    assert answer_arguments(after("set a | b"), {"action": "start", "step": step}).plan.active == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"action": 3},
        {"action": "set", "steps": [1]},
        {"action": "start", "step": "one"},
        {"action": "start", "step": True},
        {"action": "start", "step": 10**30},
        {"action": "start", "step": "9" * 6000},
        {"action": "add", "title": ["x"]},
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_in_words(arguments):
    move = answer_arguments(after("set a | b"), arguments)
    assert not move.ok
    assert move.text.startswith("planctl: ")


def test_titles_stay_on_one_line_and_short():
    plan = answer_arguments(Plan(), {"action": "set", "steps": ["a\nb | c", "x" * 999]}).plan
    assert plan.steps[0].title == "a b / c"
    assert len(plan.steps[1].title) == 200


def test_the_schema_names_exactly_the_actions_there_are():
    named = PLANCTL_TOOL["function"]["parameters"]["properties"]["action"]["enum"]
    assert all("there is no action" not in moved(Plan(), PlanRequest(action=a)).text for a in named)


WORDS = st.text(max_size=12)
LINES = st.one_of(
    st.lists(WORDS, max_size=5).map(lambda titles: "set " + "|".join(titles)),
    st.integers(-1, 6).map(lambda n: f"start {n}"),
    WORDS.map(lambda words: f"complete {words}"),
    WORDS.map(lambda words: f"add {words}"),
    st.integers(-1, 6).map(lambda n: f"drop {n}"),
    st.tuples(st.integers(-1, 6), WORDS).map(lambda pair: f"rename {pair[0]} {pair[1]}"),
    st.just("show"),
    WORDS,
)


def played(lines: list[str]) -> list[PlanMove]:
    moves, plan = [], Plan()
    for line in lines:
        moves.append(answer_line(plan, f"planctl {line}"))
        plan = moves[-1].plan
    return moves


@given(st.lists(LINES, max_size=30))
def test_whatever_is_written_at_most_one_step_is_active_and_done_steps_stay_done(lines):
    before = Plan()
    for move in played(lines):
        plan = move.plan
        assert len(plan.numbers(StepState.ACTIVE)) <= 1
        assert len(plan.steps) <= MAX_STEPS
        for number in before.numbers(StepState.DONE):
            assert plan.steps[number - 1] == before.steps[number - 1]
        assert not plan.steps or any(s.state is not StepState.DROPPED for s in plan.steps)
        before = plan


@given(st.lists(LINES, max_size=30))
def test_the_changes_of_all_moves_give_the_plan_again(lines):
    steps: dict[int, Any] = {}
    moves = played(lines)
    for move in moves:
        for change in move.changes:
            if change.action == "set" and change.plan_step == 0:
                steps = {}
            elif change.plan_step:
                steps[change.plan_step] = (change.title, change.status)
    plan = moves[-1].plan if moves else Plan()
    assert steps == {n: (s.title, s.state.value) for n, s in enumerate(plan.steps, start=1)}


@given(st.lists(LINES, max_size=20))
def test_every_move_named_as_allowed_is_legal(lines):
    moves = played(lines)
    plan = moves[-1].plan if moves else Plan()
    for words in allowed_moves(plan):
        action, _, rest = words.partition(" (")
        number = rest.split(",")[0].rstrip(")").split()
        request = PlanRequest(
            action=action,
            steps=("t",),
            title="t" if action != "set" else "",
            step=int(number[0]) if number and number[0].isdigit() else None,
        )
        assert moved(plan, request).ok, (words, plan)


@given(
    st.dictionaries(
        st.sampled_from(["action", "steps", "step", "title", "outcome"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=6,
        )
        | st.sampled_from(["set", "start", "complete", "add", "drop", "rename", "show"]),
    )
)
def test_no_arguments_break_the_tool(arguments):
    assert answer_arguments(after("set a | b", "start 1"), arguments).text
