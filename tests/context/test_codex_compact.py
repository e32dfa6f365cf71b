"""`codex_compact`: near the end of the window one summary replaces the whole history."""

from pipeline.views.policy import CallKind
from pipeline.views.trajectory import Part, view_messages
from tests.context.arms import arm
from tests.context.driving import ran, shown
from tests.context.scripts import Ran, Round, read, rounds, says, set_plan


def run_of(n: int, *, before: tuple[Round, ...] = (), **parameters: object) -> Ran:
    script = [*before, *rounds(*[read(f"{k}.py", 90) for k in range(n)])]
    return ran(arm("codex_compact", **parameters), script, says("notes"), context_length=1000)


def test_at_nine_tenths_of_the_window_all_of_the_history_becomes_one_summary() -> None:
    assert run_of(9).requests == []
    run = run_of(10)
    assert len(run.requests) == 1
    assert shown(run) == [
        "You are an agent.",
        "Fix the bug.",
        "Your earlier steps are no longer shown. Notes about them:\nnotes",
    ]


def test_the_model_is_asked_behind_the_history_as_it_was_shown() -> None:
    (request,) = run_of(10).requests
    assert request.kind is CallKind.SUMMARY
    messages = list(request.messages or ())
    assert len(messages) == 2 + 2 * 10 + 1
    assert "summary" in messages[-1]["content"]
    assert "9.py:89" in messages[-2]["content"]


def test_user_messages_stay_before_the_summary_the_newest_as_far_as_they_fit() -> None:
    said = (Round(), Round())
    texts = shown(run_of(10, before=said))
    assert texts[2:4] == ["Your reply had no action."] * 2
    assert texts[4].endswith("notes")
    assert len(shown(run_of(10, before=said, keep_user_tokens=9))) == 4


def test_the_next_compaction_takes_the_old_summary_with_it() -> None:
    run = run_of(20)
    assert len(run.requests) == 2
    assert "notes" in str(run.requests[1].messages)
    assert [text.endswith("notes") for text in shown(run)] == [False, False, True]
    inserted = [e.text for e in run.standing.values() if e.part is Part.INSERTED]
    assert inserted.count("") == 1


def test_the_plan_stays_in_the_view() -> None:
    view = view_messages(*_view(run_of(10, before=tuple(rounds(set_plan(2))))))
    assert [m["role"] for m in view] == ["system", "user", "assistant", "tool", "user"]
    assert view[3]["content"] == "plan"


def _view(run: Ran) -> tuple[object, object]:
    return run.trajectory, run.standing


def test_an_empty_summary_replaces_nothing() -> None:
    script = rounds(*[read(f"{k}.py", 90) for k in range(10)])
    run = ran(arm("codex_compact"), script, says(" "), context_length=1000)
    assert run.standing == {}
