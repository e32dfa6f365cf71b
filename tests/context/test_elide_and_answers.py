"""The shared elision, how answers to the cleanup are read, and the plan as events tell it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.views.draws import ranks, uniform
from pipeline.views.elide import elide
from pipeline.views.plan_steps import completed_in, step_of, step_spans, steps_left
from pipeline.views.prune_tool import answer_from_command, prune_answer
from pipeline.views.trajectory import Message, Part
from tests.context.scripts import Round, Script, planctl, read, rounds, set_plan


def output(text: str, tool: str | None = "bash") -> Message:
    return Message(index=3, step_index=1, role="tool", content=text, tool=tool)


# --- elision -------------------------------------------------------------------------------------
def test_outputs_from_the_limit_on_keep_half_of_it_at_either_end() -> None:
    text = "a" * 5000 + "b" * 3000 + "c" * 5000
    edit = elide(output(text), 10_000)
    assert edit is not None
    assert (edit.part, edit.reason) == (Part.CONTENT, "elide")
    assert edit.text.startswith("a" * 5000 + "\n[")
    assert edit.text.endswith("]\n" + "c" * 5000)
    assert "3000 characters" in edit.text


def test_shorter_outputs_plan_results_and_other_messages_are_left() -> None:
    assert elide(output("a" * 9999), 10_000) is None
    assert elide(output("a" * 10_000), 10_000) is not None
    assert elide(output("a" * 20_000, "planctl"), 10_000) is None
    assert elide(output("a" * 20_000, None), 10_000) is None
    assert elide(output("a" * 20_000), 0) is None


# --- answers -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("prune_observations 3 5 7", (3, 5, 7)),
        ("Done.\n```mswea_bash_command\nprune_observations 3, 5\n```", (3, 5)),
        ("prune_observations(ids=[3, 5])", (3, 5)),
        ("`prune_observations 3`", (3,)),
        ("prune_observations", ()),
        ("I could call prune_observations 3 later", ()),
        ("", ()),
    ],
)
def test_a_line_of_text_answers_where_there_are_no_tool_calls(
    text: str, ids: tuple[int, ...]
) -> None:
    assert prune_answer(text, ()).ids == ids


def test_a_call_in_an_ordinary_turn_is_json_or_a_line() -> None:
    assert answer_from_command('{"ids": [1, 2, 2], "note": " x "}').ids == (1, 2)
    assert answer_from_command('{"ids": [1, 2, 2], "note": " x "}').note == "x"
    assert answer_from_command("prune_observations 4").ids == (4,)


@given(st.text(max_size=200))
def test_no_text_makes_reading_an_answer_fail(text: str) -> None:
    prune_answer(text, ())
    prune_answer("prune_observations " + text, ())
    answer_from_command(text)


# --- the plan ------------------------------------------------------------------------------------
def test_an_output_belongs_to_the_step_active_when_it_came() -> None:
    book = Script()
    switch = planctl(("complete", 1), ("start", 2))
    script = rounds(read("0"), set_plan(2), read("1"), switch, read("2"), planctl(("complete", 2)))
    for round_ in [*script, *rounds(read("3"))]:
        book.append(round_)
    spans = step_spans(book.trajectory)
    outputs = [m for m in book.trajectory.observations() if m.is_prunable]
    assert [step_of(m, spans) for m in outputs] == [None, 1, 2, None]
    assert steps_left(book.trajectory) == 0


def test_a_turn_may_complete_several_steps() -> None:
    book = Script()
    book.append(Round(acts=(set_plan(3),)))
    both = planctl(("complete", 1), ("start", 2)), planctl(("complete", 2))
    book.append(Round(acts=both))
    assert completed_in(book.trajectory.turns[-1], book.trajectory) == [1, 2]
    assert steps_left(book.trajectory) == 1


def test_added_and_dropped_steps_count() -> None:
    book = Script()
    assert steps_left(book.trajectory) is None
    for act in (set_plan(2), planctl(("add", 3)), planctl(("drop", 2)), planctl(("complete", 1))):
        book.append(Round(acts=(act,)))
    assert steps_left(book.trajectory) == 1


# --- chance and lines ----------------------------------------------------------------------------
def test_draws_belong_to_their_place() -> None:
    assert uniform(1, "turn", 3) == uniform(1, "turn", 3)
    assert len({uniform(s, "turn", k) for s in range(5) for k in range(50)}) == 250
    mean = sum(uniform(0, k) for k in range(2000)) / 2000
    assert mean == pytest.approx(0.5, abs=0.03)
    assert sorted(ranks(3, 40, "x")) == list(range(40))
    assert ranks(3, 40, "x") != ranks(4, 40, "x")
