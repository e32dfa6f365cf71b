"""`dcp_compress`: the model compresses ranges of its history with a tool of its own."""

import json

import pytest

from pipeline.arms.dcp_compress import compression_of
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands, shown
from tests.context.scripts import Act, Ran, planctl, read, rounds, set_plan


def compress(first: int, last: int, summary: str = "all is well") -> Act:
    arguments = {"first": first, "last": last, "summary": summary}
    return Act(command=json.dumps(arguments), output="noted", tool="compress")


def run_of(*acts: Act, **parameters: object) -> Ran:
    return ran(arm("dcp_compress", **parameters), rounds(*acts))


FOUR = [read(f"{k}.py") for k in range(1, 5)]


def summaries(run: Ran) -> list[str]:
    return [text for text in shown(run) if "compressed]" in text]


def test_outputs_carry_their_numbers_from_the_start() -> None:
    texts = shown(run_of(*FOUR))
    assert [t.partition("\n")[0] for t in texts if "output" in t] == [
        f"[output {k}]" for k in range(1, 5)
    ]


def test_a_range_becomes_the_models_summary_commands_included() -> None:
    run = run_of(*FOUR, compress(2, 3, "both are fine"))
    assert summaries(run) == ["[Outputs 2 to 3, compressed]\nboth are fine"]
    texts = "\n".join(shown(run))
    assert "1.py:0" in texts
    assert "2.py:0" not in texts
    assert "4.py:0" in texts
    assert len(shown(run)) == 2 + 2 + 1 + 2 + 2


def test_a_later_range_takes_the_summaries_that_it_overlaps_into_its_own() -> None:
    run = run_of(
        *FOUR,
        compress(1, 2, "one, two"),
        read("6.py"),
        compress(4, 4, "four"),
        compress(2, 6, "rest"),
    )
    assert summaries(run) == [
        "[Outputs 2 to 6, compressed]\nrest\n"
        "[Outputs 1 to 2, compressed]\none, two\n[Outputs 4 to 4, compressed]\nfour"
    ]


def test_ranges_side_by_side_stay_apart() -> None:
    run = run_of(*FOUR, compress(1, 2, "first"), compress(3, 4, "second"))
    assert [t.rpartition("\n")[2] for t in summaries(run)] == ["first", "second"]


def test_a_range_that_is_compressed_already_is_left_alone() -> None:
    run = run_of(*FOUR, compress(1, 3, "first"), compress(2, 3, "again"))
    assert [t.rpartition("\n")[2] for t in summaries(run)] == ["first"]


def test_the_turn_that_asks_and_the_plan_stay() -> None:
    run = run_of(set_plan(2), *FOUR, compress(1, 9))
    texts = shown(run)
    assert "plan" in texts
    assert texts[-1].endswith("noted")
    assert summaries(run) == ["[Outputs 1 to 4, compressed]\nall is well"]


@pytest.mark.parametrize(
    "command",
    [
        "{}",
        '{"first": 3, "last": 2, "summary": "s"}',
        '{"first": 1, "last": 2, "summary": " "}',
        '{"first": true, "last": 2, "summary": "s"}',
        '{"first": 1',
        "[1, 2]",
        "compress 1 2",
    ],
)
def test_an_unusable_call_compresses_nothing_and_says_what_is_needed(command: str) -> None:
    run = run_of(*FOUR, Act(command=command, output="no", tool="compress"))
    assert summaries(run) == []
    (tool,) = arm("dcp_compress").policy.tools
    answer = tool.answer(run.trajectory, command)
    assert answer.is_error
    assert "needs the numbers" in answer.text


def test_a_call_in_text_mode_is_one_line() -> None:
    found = compression_of("compress 2 5 the parser is fine")
    assert found is not None
    assert (found.first, found.last, found.summary) == (2, 5, "the parser is fine")


def test_repeats_and_failed_commands_are_cleaned_up_only_when_a_range_is_compressed() -> None:
    failed = Act(command="pytest -x " + "long " * 20, output="boom", returncode=1)
    acts = [read("a.py"), failed, read("b.py"), read("a.py"), *FOUR]
    assert {e.reason for e in run_of(*acts, purge_after_turns=2).standing.values()} == {"stamp"}
    run = run_of(*acts, compress(3, 3), purge_after_turns=2)
    assert removed_commands(run, "dedup") == ["cat a.py"]
    assert len(run.edits("purge")) == 1


def reminders(run: Ran) -> list[str]:
    return [t.rpartition("\n")[2] for t in shown(run) if "The history holds" in t]


def test_reminders_begin_at_one_size_of_the_view_and_urge_from_another() -> None:
    run = run_of(*[read(f"{k}.py", 100) for k in range(20)], nudge_from_tokens=500,
                 urge_from_tokens=1500)  # fmt: skip
    gentle = [text for text in reminders(run) if "you may compress" in text]
    urging = [text for text in reminders(run) if "before you go on" in text]
    # At turns 5 and 10 the view holds 500 to 1,500 words, and from turn 14 on more.
    assert (len(gentle), len(urging)) == (2, 7)
    assert run_of(*[read(f"{k}.py", 100) for k in range(20)]).edits("nudge") == []
    assert reminders(run_of(*FOUR)) == []


def test_a_reminder_says_how_much_the_history_holds_without_itself() -> None:
    run = run_of(*FOUR, read("5.py"), nudge_from_tokens=0)
    (text,) = reminders(run)
    system_and_task, call, output, number = 7, 4, 20, 2
    assert f"holds {system_and_task + 5 * (call + output) + 4 * number} tokens" in text


def test_a_plan_update_inside_a_range_keeps_the_plan() -> None:
    run = run_of(read("a.py"), planctl(("start", 1)), read("b.py"), read("c.py"), compress(1, 2))
    assert "plan" in shown(run)
    assert summaries(run) == ["[Outputs 1 to 2, compressed]\nall is well"]
