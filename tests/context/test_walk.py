"""One walk serves live runs, replay and checks: what it asks, keeps and puts in force."""

import pytest

from pipeline.views.policy import AuxReply, AuxRequest, CallKind
from pipeline.views.trajectory import Decision
from pipeline.views.walk import Growing, PlainView, Walk
from tests.context.arms import arm
from tests.context.driving import context, ran
from tests.context.scripts import Script, no_answer, planctl, prunes, read, rounds, set_plan

WORK = rounds(set_plan(3), read("a.py"), read("b.py"), planctl(("complete", 1), ("start", 2)))


def test_an_answer_is_kept_where_it_was_given() -> None:
    run = ran(arm("plan_prune"), WORK, prunes(1))
    (decision,) = run.trajectory.decisions
    assert (decision.kind, decision.message_index) == ("cleanup", len(run.trajectory.messages))
    assert [call.arguments for call in decision.tool_calls] == ['{"ids": [1]}']


def test_a_kept_answer_is_not_asked_for_again() -> None:
    first = ran(arm("plan_prune"), WORK, prunes(1))
    history = Growing(first.trajectory, first.trajectory.decisions)
    view = PlainView(trajectory=history.trajectory)
    walk = Walk(arm("plan_prune").policy.build(context()), view, no_answer)
    for moment in first.moments:
        history.grow_to(moment.n_messages)
        assert list(walk.step()) == list(moment.new)
    assert view.standing == first.standing
    assert len(history.trajectory.decisions) == 1


def test_an_answer_of_another_moment_or_kind_is_none() -> None:
    book = Script()
    here = len(book.trajectory.messages)
    for kind, at in (("cleanup", here - 1), ("summary", here), ("cleanup", here + 1)):
        book.trajectory.decisions.append(
            Decision(kind=kind, message_index=at, call_index=0, content="other")
        )
    asked: list[AuxRequest] = []

    class Asks:
        def decide(self, trajectory, standing, ask):  # noqa: ARG002
            assert ask(AuxRequest(kind=CallKind.CLEANUP)).content == "fresh"
            return ()

    def answer(request: AuxRequest) -> AuxReply:
        asked.append(request)
        return AuxReply(kind=request.kind, content="fresh", call_index=7)

    walk = Walk(Asks(), PlainView(trajectory=book.trajectory), answer)
    walk.step()
    walk.step()
    assert len(asked) == 1, "the second time it is known"
    assert book.trajectory.decisions[-1].call_index == 7


def test_a_growing_history_shows_no_future() -> None:
    whole = ran(arm("full_history"), WORK).trajectory
    history = Growing(whole)
    for n in range(1, len(whole.messages) + 1):
        assert [m.index for m in history.grow_to(n)] == [n - 1]
        assert all(event.message_index < n for event in history.trajectory.plan_events)
    assert history.trajectory.turns == whole.turns
    assert history.trajectory.plan_events == whole.plan_events


@pytest.mark.parametrize("name", ["full_history", "dedup", "plan_prune"])
def test_only_a_policy_that_says_so_keeps_files_or_asks_the_server(name: str) -> None:
    walk = Walk(arm(name).policy.build(context()), PlainView(), no_answer)
    assert walk.server_question() is None
    assert walk.files_of([]) == {}
