"""docs/methods.md, Random deletion: the 42 configurations."""

from collections.abc import Callable, Collection

import pytest

from pipeline.views.thinning import units_of
from pipeline.views.trajectory import Part, view_messages
from tests.context.arms import arm
from tests.context.driving import context, ran, removed_commands, shown
from tests.context.scripts import Act, Round, no_answer, read, rounds, run


def thoughts(n: int) -> list[Round]:
    return [
        Round(
            acts=(read(f"{k}.py", words=50),), reasoning=f"thinking about {k} " * 10, text="Next."
        )
        for k in range(n)
    ]


def test_delayed_leaves_the_last_two_turns_intact() -> None:
    result = ran(arm("deletion", rate=1.0), thoughts(6))
    assert removed_commands(result, "delete") == ["cat 0.py", "cat 1.py", "cat 2.py", "cat 3.py"]


def test_immediate_rewrites_before_the_next_call() -> None:
    result = ran(arm("deletion", rate=1.0, output_delay=0), thoughts(3))
    assert len(result.edits("delete")) == 3
    assert len(result.moments[1].new) == 1


def test_delay_is_a_parameter_of_each_scope() -> None:
    spec = arm("deletion", scope="both", rate=1.0, output_delay=1, reasoning_delay=3)
    result = ran(spec, thoughts(5))
    assert len([c for c in removed_commands(result, "delete") if c]) == 4
    assert [part for _, part in result.standing].count(Part.REASONING) == 2


def test_turn_level_deletes_the_whole_content_of_a_share_of_the_turns() -> None:
    for percent in (25, 50, 75, 100):
        spec = arm("deletion", rate=percent / 100, output_delay=0)
        result = ran(spec, thoughts(200))
        assert len(result.edits("delete")) == pytest.approx(2 * percent, abs=15)
        assert {e.text for e in result.edits("delete")} == {"[Earlier command output omitted.]"}


def test_what_a_smaller_share_deletes_a_larger_one_deletes_too() -> None:
    gone = [
        set(removed_commands(ran(arm("deletion", rate=rate), thoughts(40)), "delete"))
        for rate in (0.25, 0.5, 0.75, 1.0)
    ]
    assert gone[0] < gone[1] < gone[2] < gone[3]


def test_token_level_deletes_a_share_of_the_tokens_of_each_turn_and_nests() -> None:
    whole = thoughts(1)[0].acts[0].output
    left = []
    for rate in (0.25, 0.5, 0.75):
        result = ran(arm("deletion", unit="token", rate=rate, output_delay=0), thoughts(1))
        (edit,) = result.edits("delete")
        assert len(edit.text) == pytest.approx(len(whole) * (1 - rate), rel=0.15)
        left.append(edit.text)
    assert len(left[0]) > len(left[1]) > len(left[2])


def test_both_deletes_output_and_reasoning_of_the_same_turns() -> None:
    result = ran(arm("deletion", scope="both", rate=0.5), thoughts(30))
    messages = result.trajectory.messages
    outputs = {i for i, _ in result.standing if messages[i].role == "tool"}
    thinking = {i + 1 for i, part in result.standing if part is Part.REASONING}
    assert outputs == thinking
    assert 5 < len(outputs) < 25


@pytest.mark.parametrize(
    ("reasoning_in", "parts"),
    [
        ("both", {Part.REASONING, Part.CONTENT}),
        ("field", {Part.REASONING}),
        ("auto", {Part.REASONING}),
        ("text", {Part.CONTENT}),
    ],
)
def test_reasoning_is_where_the_arm_says(reasoning_in: str, parts: set[Part]) -> None:
    spec = arm("deletion", scope="reasoning", rate=1.0, reasoning_in=reasoning_in)
    result = ran(spec, thoughts(4))
    assert {part for _, part in result.standing} == parts
    assert shown(result).count("Next.") == (2 if Part.CONTENT in parts else 4)


def test_all_thinking_that_the_next_call_would_show_goes_unless_told_otherwise() -> None:
    """Models with a reasoning field write a THOUGHT beside it, which is thinking all the same."""
    result = ran(arm("deletion", scope="reasoning", rate=1.0, reasoning_delay=0), thoughts(3))
    shown_now = view_messages(result.trajectory, result.standing)
    assert not any(m.get("reasoning") for m in shown_now)
    assert "Next." not in shown(result)
    assert not any(removed_commands(result, "delete"))


def test_reasoning_is_the_assistants_text_where_the_model_has_none() -> None:
    script = [Round(acts=(read(f"{k}.py"),), text=f"I look at {k}.") for k in range(4)]
    result = ran(arm("deletion", scope="reasoning", rate=1.0), script)
    assert [text for text in shown(result) if "I look" in text] == ["I look at 2.", "I look at 3."]


def test_commands_in_the_text_are_no_reasoning() -> None:
    script = [Round(acts=(Act(command="ls"),), text="I list files.") for _ in range(3)]
    result = ran(arm("deletion", scope="reasoning", rate=1.0), script, text_mode=True)
    assert shown(result)[2] == "```mswea_bash_command\nls\n```"


def test_the_seed_decides_which_turns() -> None:
    one, two = (
        removed_commands(ran(arm("deletion"), thoughts(40), seed=seed), "delete") for seed in (1, 2)
    )
    assert one != two


class Letters:
    """A tokenizer of which every letter is a token."""

    name = "letters"

    def count(self, text: str) -> int:
        return len(text)

    def thinned(self, text: str, chosen: Callable[[int], Collection[int]]) -> str:
        return "".join(text[place] for place in sorted(chosen(len(text))))


@pytest.mark.parametrize(("rate", "left"), [(0.25, 75), (0.5, 50), (0.75, 25)])
def test_token_level_counts_the_tokens_of_the_runs_tokenizer(rate: float, left: int) -> None:
    spec = arm("deletion", unit="token", rate=rate, output_delay=0)
    policy = spec.policy.build(context(counter=Letters()))
    script = rounds(Act(command="cat f", output="abcdefghij" * 10))
    (edit,) = run(policy, script, no_answer).edits("delete")
    assert len(edit.text) == left


def test_the_diets_sample_counts_the_tokens_of_the_runs_tokenizer() -> None:
    spec = arm("agent_diet_random", min_tokens=10, max_ratio=100.0, delay_turns=0)
    policy = spec.policy.build(context(counter=Letters()))
    output = "abcdefghi " * 10
    (edit,) = run(policy, rounds(Act(command="cat f", output=output)), no_answer).edits("diet")
    assert len(edit.text) == 25


def test_units_joined_are_the_text() -> None:
    for text in ("", "a b\n\n  c", "naïve 数据 __x__ ==\t1\n", "x" * 1000):
        assert "".join(units_of(text)) == text


def test_elided_outputs_are_thinned_as_shown() -> None:
    script = rounds(Act(command="cat big", output="word " * 9000), read("a"), read("b"))
    result = ran(arm("deletion", unit="token", rate=0.5), script)
    assert max(map(len, shown(result))) < 10_000
