"""docs/methods.md, Masking and summaries: observation_mask, llm_summary, hybrid."""

import pytest

from pipeline.arms.observation_mask import masked_turns
from pipeline.views.policy import CallKind
from pipeline.views.trajectory import view_messages
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands, shown
from tests.context.scripts import Act, Round, planctl, read, rounds, says, set_plan


def reads(n: int) -> list[Round]:
    return rounds(*[read(f"{k}.py") for k in range(n)])


def test_only_the_newest_ten_turns_outputs_stay() -> None:
    result = ran(arm("observation_mask"), reads(13))
    assert removed_commands(result, "mask") == ["cat 0.py", "cat 1.py", "cat 2.py"]


def test_a_masked_output_says_how_many_lines_it_had() -> None:
    script = [*rounds(Act(command="ls", output="a\nb\nc")), *reads(10)]
    assert "Old environment output: (3 lines omitted)" in shown(
        ran(arm("observation_mask"), script)
    )


def test_a_turn_with_several_outputs_is_masked_as_one() -> None:
    script = [Round(acts=(read("a.py"), read("b.py"))), *reads(10)]
    assert removed_commands(ran(arm("observation_mask"), script), "mask") == [
        "cat a.py",
        "cat b.py",
    ]


def test_polling_lets_the_window_float_between_m_and_m_plus_p() -> None:
    windows = [n - masked_turns(n, 10, 5) for n in range(40)]
    assert windows[:11] == list(range(11))
    assert set(windows[10:]) == {10, 11, 12, 13, 14, 15}
    cuts = [n for n in range(1, 40) if masked_turns(n, 10, 5) != masked_turns(n - 1, 10, 5)]
    assert cuts == [16, 22, 28, 34]


def test_outputs_of_always_kept_commands_are_never_masked() -> None:
    spec = arm("observation_mask", always_keep=[r"\bcat 1\.py"])
    assert removed_commands(ran(spec, reads(13)), "mask") == ["cat 0.py", "cat 2.py"]


def test_plan_results_are_never_masked() -> None:
    result = ran(arm("observation_mask"), [*rounds(set_plan(2)), *reads(12)])
    assert removed_commands(result, "mask") == ["cat 0.py", "cat 1.py"]


def test_at_31_unsummarised_turns_the_oldest_21_are_summarised() -> None:
    before = ran(arm("llm_summary"), reads(30))
    assert before.requests == []
    result = ran(arm("llm_summary"), reads(31), says("notes"))
    (request,) = result.requests
    assert (request.kind, request.temperature) == (CallKind.SUMMARY, 0.0)
    text = shown(result)
    assert len(text) == 2 + 1 + 2 * 10
    assert text[2].endswith("\nnotes")
    assert "21.py:0" in text[4]


def test_the_summary_is_made_from_the_task_and_the_turns() -> None:
    result = ran(arm("llm_summary"), reads(31), says("notes"))
    messages = result.requests[0].messages
    assert messages is not None
    assert "Task:\nFix the bug." in messages[1]["content"]
    assert "cat 0.py" in messages[1]["content"]
    assert "20.py:19" in messages[1]["content"]
    assert "21.py" not in messages[1]["content"]


def test_the_summary_asks_for_the_papers_sections() -> None:
    result = ran(arm("llm_summary"), reads(31), says("notes"))
    messages = result.requests[0].messages
    assert messages is not None
    for section in (
        "USER CONTEXT", "COMPLETED", "PENDING", "CURRENT STATE", "CODE STATE", "TESTS",
        "CHANGES", "DEPENDENCIES", "VERSION CONTROL",
    ):  # fmt: skip
        assert f"{section}:" in messages[0]["content"]


def test_the_next_summary_starts_from_the_last_and_replaces_it() -> None:
    answers = iter(["first notes", "second notes"])
    result = ran(arm("llm_summary"), reads(52), lambda r: says(next(answers))(r))
    second = result.requests[1].messages
    assert second is not None
    assert "first notes" in second[1]["content"]
    assert "Fix the bug." not in second[1]["content"]
    summaries = [text for text in shown(result) if "notes" in text]
    assert len(summaries) == 1
    assert summaries[0].endswith("second notes")
    assert len(shown(result)) == 2 + 1 + 2 * 10


def test_an_empty_summary_replaces_nothing() -> None:
    assert ran(arm("llm_summary"), reads(31), says(" ")).standing == {}


def test_turns_that_show_the_plan_stay_when_summarised() -> None:
    both = Round(acts=(set_plan(2), read("a.py")))
    result = ran(arm("llm_summary"), [both, *reads(30)], says("notes"))
    view = view_messages(result.trajectory, result.standing)
    assert [m["role"] for m in view[:6]] == ["system", "user", "user", "assistant", "tool", "tool"]
    assert view[4]["content"] == "plan"
    assert view[5]["content"] == "[Output summarised above.]"


def test_a_plan_turn_at_the_end_of_a_batch_is_not_summarised_twice() -> None:
    script = [*reads(20), *rounds(planctl(("start", 1))), *reads(30)]
    result = ran(arm("llm_summary"), script, says("notes"))
    assert [d.message_index for d in result.trajectory.decisions] == [64]


def test_format_errors_go_with_the_turns_around_them() -> None:
    result = ran(arm("llm_summary"), [*reads(5), Round(), *reads(26)], says("notes"))
    assert "Your reply had no action." not in shown(result)


def test_hybrid_masks_first_and_summarises_at_53_turns() -> None:
    result = ran(arm("hybrid"), reads(52))
    assert len(result.edits("mask")) == 42
    result = ran(arm("hybrid"), reads(53), says("notes"))
    assert len(result.requests) == 1
    assert len(shown(result)) == 2 + 1 + 2 * 10


@pytest.mark.parametrize(("reads_what", "whole"), [("view", False), ("raw", True)])
def test_hybrids_summary_reads_masked_outputs_or_whole_ones(reads_what: str, whole: bool) -> None:
    result = ran(arm("hybrid", summary_reads=reads_what), reads(53), says("notes"))
    messages = result.requests[0].messages
    assert messages is not None
    assert ("5.py:7" in messages[1]["content"]) is whole
